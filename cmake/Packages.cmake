# SPDX-License-Identifier: Apache-2.0
# Debian packages, one for each component of the installation: `./dev deb`, or cpack in a build folder. A package depends
# on what its own files load (dpkg-shlibdeps finds it) and on what is named here.
set(RONDE_PACKAGE_RELEASE 1 CACHE STRING "What packages of one version count")
get_target_property(soversion ronde SOVERSION)
set(runtime_package libronde${soversion})
set(development_package libronde-dev)
set(mpi_package libronde-mpi)
set(ucx_package libronde-ucx)
set(tools_package ronde-tools)
set(python_package python3-ronde)

set(CPACK_COMPONENTS_ALL runtime development python)
if(TARGET ronde_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
if(TARGET ronde_ucx)
  list(APPEND CPACK_COMPONENTS_ALL ucx)
endif()
if(TARGET ronderun AND TARGET ronde-perf)
  list(APPEND CPACK_COMPONENTS_ALL tools)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ronde)
set(CPACK_PACKAGE_VENDOR "the Ronde developers")
set(CPACK_PACKAGE_CONTACT "${CPACK_PACKAGE_VENDOR} <ronde@users.noreply.github.com>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_DEBIAN_PACKAGE_RELEASE ${RONDE_PACKAGE_RELEASE})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(version ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY =)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)

# ronde_package(<component> SUMMARY <text> TEXT <text> [SECTION <section>] [DEPENDS <packages>] [SUGGESTS <packages>]):
# its package, with a copyright and a changelog in it.
function(ronde_package component)
  cmake_parse_arguments(arg "" "SUMMARY;TEXT;SECTION;DEPENDS;SUGGESTS" "" ${ARGN})
  set(package ${${component}_package})
  string(TOUPPER ${component} key)
  foreach(pair "PACKAGE_NAME;${package}" "PACKAGE_SECTION;${arg_SECTION}" "PACKAGE_DEPENDS;${arg_DEPENDS}"
          "PACKAGE_SUGGESTS;${arg_SUGGESTS}" "DESCRIPTION;${arg_SUMMARY}\n${arg_TEXT}")
    list(GET pair 0 field)
    list(GET pair 1 value)
    if(value)
      set(CPACK_DEBIAN_${key}_${field} ${value} PARENT_SCOPE)
    endif()
  endforeach()
  set(folder ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package})
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/debian/copyright DESTINATION ${folder}
          COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${PROJECT_BINARY_DIR}/debian/changelog.Debian.gz ${PROJECT_BINARY_DIR}/debian/changelog.gz
          DESTINATION ${folder} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

# Lines of at most 79 characters.
set(what "Ronde averages gradients for data-parallel training. It takes tensors by
name, in any order and from any thread, reduces them over all ranks of a job
and hands the results back.")
set(exactly "${runtime_package} (= ${version})")
ronde_package(runtime SUMMARY "allreduce runtime for data-parallel training"
  SUGGESTS "${mpi_package}, ${ucx_package}"
  TEXT "${what} The ranks of one host reduce in shared memory.
Plug-ins carry what goes between hosts.")
ronde_package(development SUMMARY "allreduce runtime for data-parallel training (development)"
  SECTION libdevel DEPENDS "${exactly}"
  SUGGESTS "${mpi_package}, libopenmpi-dev, libtorch-dev, libdnnl-dev, libprotobuf-dev, zlib1g-dev, libpng-dev, libboost-program-options-dev, cppzmq-dev, libsodium-dev"
  TEXT "${what} This package has the headers for C,
C++ and LibTorch, the training core, and what CMake and pkg-config need.")
ronde_package(mpi SUMMARY "allreduce runtime for data-parallel training (MPI)" DEPENDS "${exactly}"
  TEXT "${what} This package lets MPI start jobs and
carry tensors between hosts. It also speeds up MPI_Allreduce of programs that
know nothing of Ronde.")
ronde_package(ucx SUMMARY "allreduce runtime for data-parallel training (UCX)" DEPENDS "${exactly}, libucx0"
  TEXT "${what} This package lets UCX carry tensors
between hosts.")
ronde_package(tools SUMMARY "allreduce runtime for data-parallel training (tools)" SECTION utils
  DEPENDS "${exactly}, ${mpi_package} (= ${version}), openmpi-bin"
  TEXT "${what} This package has ronderun, which
starts jobs, ronde-perf, which measures a machine, and ronde-checkpoint, which
looks at what trainings have saved.")
ronde_package(python SUMMARY "allreduce runtime for data-parallel training (Python 3)" SECTION python
  DEPENDS "${runtime_package} (>= ${version}), python3, python3-numpy" SUGGESTS "${mpi_package}, python3-torch"
  TEXT "${what} This package has Horovod's names for
NumPy arrays and for PyTorch.")
set(triggers ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
foreach(key RUNTIME MPI UCX)
  set(CPACK_DEBIAN_${key}_PACKAGE_CONTROL_EXTRA ${triggers})
endforeach()
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/cmake/debian/postinst;${PROJECT_SOURCE_DIR}/cmake/debian/prerm)

# Where Debian's Python looks; for packages alone, since elsewhere pip installs what ./dev wheel makes.
install(DIRECTORY bindings/python/ronde DESTINATION lib/python3/dist-packages
        COMPONENT python EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.py" PATTERN py.typed PATTERN __pycache__ EXCLUDE)
# By which pip and importlib.metadata know the package and its version.
set(dist_info ronde-${PROJECT_VERSION}.dist-info)
configure_file(bindings/python/METADATA.in ${PROJECT_BINARY_DIR}/debian/${dist_info}/METADATA @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/debian/${dist_info}/METADATA DESTINATION lib/python3/dist-packages/${dist_info}
        COMPONENT python EXCLUDE_FROM_ALL)

configure_file(cmake/debian/changelog.in ${PROJECT_BINARY_DIR}/debian/changelog.Debian @ONLY)
configure_file(CHANGELOG.md ${PROJECT_BINARY_DIR}/debian/changelog COPYONLY)
find_program(RONDE_GZIP gzip)
mark_as_advanced(RONDE_GZIP)
if(RONDE_GZIP)
  execute_process(COMMAND ${RONDE_GZIP} -9nfk changelog changelog.Debian
                  WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/debian COMMAND_ERROR_IS_FATAL ANY)
endif()
include(CPack)
