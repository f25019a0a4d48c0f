# SPDX-License-Identifier: Apache-2.0
# Everything that Ronde needs from the system, in one place; `./dev` installs the Debian packages.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# Headers alone, for one private source of the runtime (TF_CONFIG is JSON) and for the trainer.
find_package(nlohmann_json 3.11 REQUIRED)

if(RONDE_WITH_MPI)
  if(RONDE_SANITIZE)
    message(FATAL_ERROR "RONDE_SANITIZE=${RONDE_SANITIZE} needs RONDE_WITH_MPI=OFF: "
                        "MPI itself trips the sanitizers. Use the presets asan and tsan.")
  endif()
  # The C API only: the C++ bindings of MPI are deprecated, and RondeTargets.cmake hides them.
  find_package(MPI REQUIRED COMPONENTS C)
endif()

# The plug-in for UCX needs the headers alone. Sanitizers see nothing of what UCX does, and with the in-memory
# transport the rest, so AUTO leaves it out there (with ON its own tests are clean under asan).
set(RONDE_UCX_FOUND OFF)
if(NOT RONDE_WITH_UCX STREQUAL "OFF" AND NOT (RONDE_WITH_UCX STREQUAL "AUTO" AND RONDE_SANITIZE))
  find_package(ucx 1.12 CONFIG QUIET)
  if(ucx_FOUND)
    set(RONDE_UCX_FOUND ON)
    set(RONDE_UCX_VERSION ${ucx_VERSION})
    get_target_property(RONDE_UCX_INCLUDE_DIRS ucx::ucp INTERFACE_INCLUDE_DIRECTORIES)
  elseif(NOT RONDE_WITH_UCX STREQUAL "AUTO")
    message(FATAL_ERROR "RONDE_WITH_UCX=${RONDE_WITH_UCX}: UCX 1.12 or newer was not found (Debian: libucx-dev)")
  endif()
endif()

if(RONDE_BUILD_EXAMPLES OR RONDE_BUILD_TESTS)
  find_package(Boost 1.74 REQUIRED COMPONENTS program_options)
endif()

if(RONDE_BUILD_EXAMPLES)
  find_package(ZLIB REQUIRED)
  find_package(PNG REQUIRED)
  find_path(RONDE_DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
  mark_as_advanced(RONDE_DNNL_INCLUDE_DIR)
  include(${CMAKE_CURRENT_LIST_DIR}/rondeDnnl.cmake)
  if(NOT TARGET ronde::dnnl)
    message(FATAL_ERROR "oneDNN's library (libdnnl.so) is not found: install Debian's libdnnl-dev")
  endif()
  find_package(Protobuf 3.21 REQUIRED)
  # For parameter servers alone; sodium, on which ZeroMQ's encryption stands, has the hash that keys are made by.
  find_package(cppzmq 4.8 QUIET)
  find_path(RONDE_SODIUM_INCLUDE_DIR sodium/crypto_hash_sha256.h)
  find_library(RONDE_SODIUM_LIBRARY sodium)
  mark_as_advanced(RONDE_SODIUM_INCLUDE_DIR RONDE_SODIUM_LIBRARY)
  set(RONDE_ZEROMQ_FOUND OFF)
  if(cppzmq_FOUND AND RONDE_SODIUM_INCLUDE_DIR AND RONDE_SODIUM_LIBRARY)
    set(RONDE_ZEROMQ_FOUND ON)
  else()
    message(STATUS "ZeroMQ or sodium is not found (Debian: cppzmq-dev, libsodium-dev): parameter servers are left out")
  endif()
endif()

# For the tests and the example of ronde/torch.hpp, which are left out without it.
if(RONDE_BUILD_TESTS AND NOT RONDE_SANITIZE)
  find_package(Torch QUIET)
endif()
