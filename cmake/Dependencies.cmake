# SPDX-License-Identifier: Apache-2.0
# Everything that Ronde needs from the system, in one place; `./dev` installs the Debian packages.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

if(RONDE_WITH_MPI)
  if(RONDE_SANITIZE)
    message(FATAL_ERROR "RONDE_SANITIZE=${RONDE_SANITIZE} needs RONDE_WITH_MPI=OFF: "
                        "MPI itself trips the sanitizers. Use the presets asan and tsan.")
  endif()
  # The C API only: the C++ bindings of MPI are deprecated, and RondeTargets.cmake hides them.
  find_package(MPI REQUIRED COMPONENTS C)
endif()

if(RONDE_BUILD_LAUNCHER OR RONDE_BUILD_EXAMPLES OR RONDE_BUILD_TESTS)
  find_package(Boost 1.74 REQUIRED COMPONENTS program_options)
endif()

if(RONDE_BUILD_EXAMPLES)
  find_package(ZLIB REQUIRED)
  # oneDNN brings no CMake package in Debian.
  find_path(RONDE_DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
  find_library(RONDE_DNNL_LIBRARY dnnl REQUIRED)
  mark_as_advanced(RONDE_DNNL_INCLUDE_DIR RONDE_DNNL_LIBRARY)
  find_package(nlohmann_json 3.11 REQUIRED)
  find_package(Protobuf 3.21 REQUIRED)
endif()

# For the tests and the example of ronde/torch.hpp, which are left out without it.
if(RONDE_BUILD_TESTS AND NOT RONDE_SANITIZE)
  find_package(Torch QUIET)
endif()
