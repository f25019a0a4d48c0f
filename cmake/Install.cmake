# SPDX-License-Identifier: Apache-2.0
# What an outsider gets: libronde.so with its headers, ronderun, and both ways to find them
# (find_package(ronde) and pkg-config); the training core, for find_package(ronde COMPONENTS trainer). Layers are not
# installed. The components are those of the packages (cmake/Packages.cmake).
if(TARGET ronderun)
  install(TARGETS ronderun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endif()
if(TARGET ronde_checkpoint AND NOT RONDE_SANITIZE)
  # Beside libronde.so in an installed tree, which may lie anywhere.
  set_target_properties(ronde_checkpoint PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS ronde_checkpoint RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endif()
include(cmake/Manuals.cmake)

# Plug-ins lie beside libronde.so, which looks for them there.
foreach(component cuda mpi ucx)
  if(TARGET ronde_${component})
    install(TARGETS ronde_${component} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component})
  endif()
endforeach()
if(TARGET ronde_mpi_allreduce)
  install(TARGETS ronde_mpi_allreduce LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi)
endif()

if(TARGET ronde)
  include(CMakePackageConfigHelpers)
  set(RONDE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ronde)

  install(TARGETS ronde EXPORT rondeTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
  install(DIRECTORY bindings/c/include/ bindings/cpp/include/ bindings/torch/include/
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
          FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  # Plug-ins that are written out of tree need one of these headers alone.
  install(FILES collectives/device/plugin.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ronde COMPONENT development)
  install(FILES collectives/transport/plugin.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ronde
          COMPONENT development RENAME transport_plugin.h)

  install(EXPORT rondeTargets NAMESPACE ronde:: DESTINATION ${RONDE_CMAKE_DIR} COMPONENT development)
  configure_package_config_file(cmake/rondeConfig.cmake.in ${PROJECT_BINARY_DIR}/rondeConfig.cmake
                                INSTALL_DESTINATION ${RONDE_CMAKE_DIR})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/rondeConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/rondeConfig.cmake ${PROJECT_BINARY_DIR}/rondeConfigVersion.cmake
          DESTINATION ${RONDE_CMAKE_DIR} COMPONENT development)

  # The training core is static, since neither its interface nor its ABI is promised.
  if(TARGET ronde_trainer)
    install(TARGETS ronde_trainer ronde_event_messages EXPORT rondeTrainerTargets
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
    if(TARGET ronde_parameter_server)
      install(TARGETS ronde_parameter_server EXPORT rondeTrainerTargets
              ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
    endif()
    install(EXPORT rondeTrainerTargets NAMESPACE ronde:: DESTINATION ${RONDE_CMAKE_DIR} COMPONENT development)
    install(FILES cmake/rondeDnnl.cmake DESTINATION ${RONDE_CMAKE_DIR} COMPONENT development)
    install(CODE "set(source \"${PROJECT_SOURCE_DIR}/bindings/trainer\")
      set(destination \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")" COMPONENT development)
    install(SCRIPT cmake/InstallTrainerHeaders.cmake COMPONENT development)
  endif()

  # The paths in ronde.pc are relative to the file itself, so that an installed tree can be moved.
  set(RONDE_PKGCONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  file(RELATIVE_PATH RONDE_PREFIX_FROM_PC /${RONDE_PKGCONFIG_DIR} /)
  string(REGEX REPLACE "/$" "" RONDE_PREFIX_FROM_PC "${RONDE_PREFIX_FROM_PC}")
  configure_file(cmake/ronde.pc.in ${PROJECT_BINARY_DIR}/ronde.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/ronde.pc DESTINATION ${RONDE_PKGCONFIG_DIR} COMPONENT development)
endif()
