# SPDX-License-Identifier: Apache-2.0
# One line registers one test. Every test has a time limit, and a test that cannot run here (no root, no
# memory) exits with 77, which ctest lists as "Skipped" in its summary; a failure always wins over a skip.

set(RONDE_SKIP_CODE 77)
set(RONDE_TEST_ENVIRONMENT
  GTEST_COLOR=no
  OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1
  ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
  UBSAN_OPTIONS=print_stacktrace=1
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1)

# Properties that every registered test gets; a caller may override them afterwards.
function(ronde_test_properties name timeout)
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${timeout} SKIP_RETURN_CODE ${RONDE_SKIP_CODE}
    ENVIRONMENT "${RONDE_TEST_ENVIRONMENT}")
endfunction()

# The headers of nearly every test, compiled once for the sanitizers. Not for the other presets, so that a
# test that does not include what it uses does not compile there.
set(RONDE_TEST_HEADERS <gtest/gtest.h> <algorithm> <array> <atomic> <chrono> <cstdint> <functional> <map>
  <memory> <mutex> <optional> <random> <span> <string> <thread> <utility> <vector>)

# ronde_add_test_program(<target> SOURCES <file>... [LIBS <target>...] [SEARCHES]): a GoogleTest program, not
# registered. SEARCHES: it computes for seconds itself.
function(ronde_add_test_program target)
  cmake_parse_arguments(arg "SEARCHES" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${target} ${arg_SOURCES})
  ronde_compile_options(${target})
  # A test is compiled in every run and works for a second: optimising it costs more than it gives, and
  # under a sanitizer three times as much. The layers that it links are optimised as their users get them.
  if(arg_SEARCHES OR NOT RONDE_SANITIZE)
    target_compile_options(${target} PRIVATE -O1)
  else()
    target_compile_options(${target} PRIVATE -O0)
    target_precompile_headers(${target} REUSE_FROM ronde_test_headers)
  endif()
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/test)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE ronde_gtest_main ${arg_LIBS} GTest::gmock Threads::Threads)
endfunction()

# ronde_add_test(<name> SOURCES <file>... [LIBS <target>...] [TIMEOUT <seconds>] [SEARCHES]): a test inside
# one process, run in every preset.
function(ronde_add_test name)
  cmake_parse_arguments(arg "SEARCHES" "TIMEOUT" "SOURCES;LIBS" ${ARGN})
  set(searches)
  if(arg_SEARCHES)
    set(searches SEARCHES)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  string(REPLACE "." "_" target ${name}_test)
  ronde_add_test_program(${target} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS} ${searches})
  add_test(NAME ${name} COMMAND ${target})
  ronde_test_properties(${name} ${arg_TIMEOUT})
endfunction()

# ronde_add_mpi_test(<name> [RANKS 1 2 3 4] SOURCES <file>... [LIBS <target>...] | COMMAND <command>...
#                    [TIMEOUT <seconds>]): one test per number of ranks, started with mpirun.
# Nothing is registered without MPI: sanitizers and MPI do not go together.
function(ronde_add_mpi_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "RANKS;SOURCES;LIBS;COMMAND" ${ARGN})
  if(NOT RONDE_WITH_MPI)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_RANKS)
    set(arg_RANKS 1 2 3 4)
  endif()
  if(arg_SOURCES)
    string(REPLACE "." "_" target ${name}_test)
    ronde_add_test_program(${target} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS})
    target_compile_definitions(${target} PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    set(arg_COMMAND $<TARGET_FILE:${target}>)
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}.np${ranks}
      COMMAND ${MPIEXEC_EXECUTABLE} --bind-to none --oversubscribe ${MPIEXEC_NUMPROC_FLAG} ${ranks}
              ${arg_COMMAND})
    ronde_test_properties(${name}.np${ranks} ${arg_TIMEOUT})
    set_tests_properties(${name}.np${ranks} PROPERTIES PROCESSORS ${ranks})
  endforeach()
endfunction()

# ronde_add_script_test(<name> COMMAND <command>... [PROCESSORS <n>] [TIMEOUT <seconds>]): a script.
function(ronde_add_script_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;PROCESSORS" "COMMAND" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  ronde_test_properties(${name} ${arg_TIMEOUT})
  set_tests_properties(${name} PROPERTIES PROCESSORS ${arg_PROCESSORS})
endfunction()
