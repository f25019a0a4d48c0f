# SPDX-License-Identifier: Apache-2.0
# What an outsider gets: libronde.so with its headers, ronderun, and both ways to find them
# (find_package(ronde) and pkg-config). Layers are not installed.
if(TARGET ronderun)
  install(TARGETS ronderun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

if(TARGET ronde_cuda)
  # The plug-in lies beside libronde.so, which looks for it there.
  install(TARGETS ronde_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

if(TARGET ronde)
  include(CMakePackageConfigHelpers)
  set(RONDE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ronde)

  install(TARGETS ronde EXPORT rondeTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY bindings/c/include/ bindings/cpp/include/ bindings/torch/include/
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  # Back ends of devices that are written out of tree need this header alone.
  install(FILES collectives/device/plugin.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ronde)

  install(EXPORT rondeTargets NAMESPACE ronde:: DESTINATION ${RONDE_CMAKE_DIR})
  configure_package_config_file(cmake/rondeConfig.cmake.in ${PROJECT_BINARY_DIR}/rondeConfig.cmake
                                INSTALL_DESTINATION ${RONDE_CMAKE_DIR})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/rondeConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/rondeConfig.cmake ${PROJECT_BINARY_DIR}/rondeConfigVersion.cmake
          DESTINATION ${RONDE_CMAKE_DIR})

  # The paths in ronde.pc are relative to the file itself, so that an installed tree can be moved.
  set(RONDE_PKGCONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  file(RELATIVE_PATH RONDE_PREFIX_FROM_PC /${RONDE_PKGCONFIG_DIR} /)
  string(REGEX REPLACE "/$" "" RONDE_PREFIX_FROM_PC "${RONDE_PREFIX_FROM_PC}")
  configure_file(cmake/ronde.pc.in ${PROJECT_BINARY_DIR}/ronde.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/ronde.pc DESTINATION ${RONDE_PKGCONFIG_DIR})
endif()
