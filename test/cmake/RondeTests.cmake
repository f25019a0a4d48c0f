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
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/test/tsan.suppressions)
if(RONDE_SANITIZE STREQUAL "thread")
  # oneDNN hands what it has made from one thread to another, and its locks are not seen: it is not instrumented.
  list(APPEND RONDE_TEST_ENVIRONMENT ONEDNN_PRIMITIVE_CACHE_CAPACITY=0)
endif()

# Properties that every registered test gets; a caller may override them afterwards. What may take longest
# starts first, so that nothing is left to wait for in the end.
# `timeout` is for a program that has its cores to itself. ctest runs more programs than there are cores, and
# sanitized ones are several times as slow: what hangs is ended all the same.
function(ronde_test_properties name timeout)
  math(EXPR limit "2 * ${timeout}")
  if(RONDE_SANITIZE)
    math(EXPR limit "4 * ${timeout}")
  endif()
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${limit} COST ${timeout} SKIP_RETURN_CODE ${RONDE_SKIP_CODE}
    ENVIRONMENT "${RONDE_TEST_ENVIRONMENT}")
endfunction()

# ronde_test_is_long(<test>...): for ./dev test full, which leaves nothing out.
function(ronde_test_is_long)
  foreach(name IN LISTS ARGN)
    if(TEST ${name})
      set_property(TEST ${name} APPEND PROPERTY LABELS long)
    endif()
  endforeach()
endfunction()

# ronde_test_needs_torch(<test>...): for ./dev test torch, which installs PyTorch.
function(ronde_test_needs_torch)
  foreach(name IN LISTS ARGN)
    set_property(TEST ${name} APPEND PROPERTY LABELS torch)
  endforeach()
endfunction()

# ronde_split_long(<test> <filter of GoogleTest>): its longest searches become <test>.long. Under a sanitizer they
# would take minutes, and show memory nothing that the rest does not: there they are left out.
function(ronde_split_long name filter)
  if(NOT TEST ${name})
    return()
  endif()
  get_property(all GLOBAL PROPERTY RONDE_FILTER_OF_${name})  # empty: all that the program has; the last one counts
  if(NOT all)
    set(all "GTEST_FILTER=")
  endif()
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "${all}-${filter}")
  if(RONDE_SANITIZE)
    return()
  endif()
  ronde_program_of(program ${name})
  add_test(NAME ${name}.long COMMAND ${program})
  ronde_test_properties(${name}.long 300)
  set_property(TEST ${name}.long APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=${filter}")
  ronde_test_is_long(${name}.long)
endfunction()

# The headers of nearly every test, parsed once. Lint knows by which names tests use them, and the preset debug does
# without.
set(RONDE_TEST_HEADERS <gmock/gmock.h> <gtest/gtest.h> <algorithm> <array> <atomic> <chrono> <cstdint> <functional>
  <map> <memory> <mutex> <optional> <random> <span> <string> <thread> <utility> <vector>)

# ronde_add_test_program(<target> SOURCES <file>... [LIBS <target>...] [SEARCHES]): a GoogleTest program, not
# registered. SEARCHES: it computes for seconds itself.
function(ronde_add_test_program target)
  cmake_parse_arguments(arg "SEARCHES" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${target} ${arg_SOURCES})
  ronde_compile_options(${target})
  # A test is compiled in every run and works for a second: optimising it costs more than it gives, and
  # under a sanitizer three times as much. The layers that it links are optimised as their users get them.
  if(arg_SEARCHES)
    target_compile_options(${target} PRIVATE -O1)
  else()
    target_compile_options(${target} PRIVATE -O0)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # g++ begins to collect garbage at 1 GiB, which saves it a twentieth of its time.
      target_compile_options(${target} PRIVATE --param=ggc-min-heapsize=1048576)
    endif()
    if(RONDE_PRECOMPILED_HEADERS)
      target_precompile_headers(${target} REUSE_FROM ronde_test_headers)
    endif()
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
  string(REPLACE "." "_" target ${name}_test)
  ronde_add_test_program(${target} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS} ${searches})
  ronde_register_test(${name} ${target} "${arg_TIMEOUT}")
endfunction()

# ronde_add_test_of_folder(<name> SOURCE <file> [LIBS <target>...] [TIMEOUT <seconds>] [SEARCHES]): the same, but all
# tests of a folder are one program, of which up to twelve sources are compiled at a time, for half of the time. Each is
# a test of its own all the same.
function(ronde_add_test_of_folder name)
  cmake_parse_arguments(arg "SEARCHES" "SOURCE;TIMEOUT" "LIBS" ${ARGN})
  set(searches)
  if(arg_SEARCHES)
    set(searches SEARCHES)
  endif()
  string(REGEX REPLACE "\\.[^.]*$" "_tests" target ${name})
  string(REPLACE "." "_" target ${target})
  if(TARGET ${target})
    target_sources(${target} PRIVATE ${arg_SOURCE})
  else()
    ronde_add_test_program(${target} SOURCES ${arg_SOURCE} LIBS ${arg_LIBS} ${searches})
    ronde_compile_together(${target})
  endif()
  ronde_register_test(${name} ${target} "${arg_TIMEOUT}")
  # Its cases are those whose suites the file names.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${arg_SOURCE})
  file(STRINGS ${arg_SOURCE} cases REGEX "^(TYPED_)?TEST(_F|_P)?\\([A-Za-z0-9_]+,")
  list(TRANSFORM cases REPLACE "^[A-Z_]+\\(([A-Za-z0-9_]+),.*" "\\1")
  list(REMOVE_DUPLICATES cases)
  list(TRANSFORM cases REPLACE "(.+)" "\\1.*:*/\\1.*:\\1/*.*:*/\\1/*.*")
  list(JOIN cases ":" filter)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=${filter}")
  set_property(GLOBAL PROPERTY RONDE_FILTER_OF_${name} "GTEST_FILTER=${filter}")
endfunction()

# ronde_register_test(<name> <program> <seconds>)
function(ronde_register_test name program timeout)
  if(NOT timeout)
    set(timeout 120)
  endif()
  add_test(NAME ${name} COMMAND ${program})
  ronde_test_properties(${name} ${timeout})
  set_property(GLOBAL PROPERTY RONDE_PROGRAM_OF_${name} ${program})
endfunction()

# ronde_program_of(<variable> <test>): the target that a test in one process runs; empty if there is no such test.
function(ronde_program_of variable name)
  get_property(program GLOBAL PROPERTY RONDE_PROGRAM_OF_${name})
  set(${variable} ${program} PARENT_SCOPE)
endfunction()

# ronde_add_test_again(<name> <test> <seconds> <NAME=value>): the same cases under other circumstances.
function(ronde_add_test_again name test timeout setting)
  ronde_program_of(program ${test})
  get_property(filter GLOBAL PROPERTY RONDE_FILTER_OF_${test})
  add_test(NAME ${name} COMMAND ${program})
  ronde_test_properties(${name} ${timeout})
  set_property(GLOBAL PROPERTY RONDE_PROGRAM_OF_${name} ${program})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "${setting}" ${filter})
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
    add_dependencies(${target} ronde_mpi)
    set(arg_COMMAND $<TARGET_FILE:${target}>)
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}.np${ranks}
      COMMAND ${MPIEXEC_EXECUTABLE} --bind-to none --oversubscribe ${MPIEXEC_NUMPROC_FLAG} ${ranks}
              ${arg_COMMAND})
    ronde_test_properties(${name}.np${ranks} ${arg_TIMEOUT})
    # They spend most of their time in starting: half a core for each rank is enough.
    math(EXPR processors "(${ranks} + 1) / 2")
    set_tests_properties(${name}.np${ranks} PROPERTIES PROCESSORS ${processors})
  endforeach()
endfunction()

# ronde_add_script_test(<name> COMMAND <command>... [PROCESSORS <n>] [TIMEOUT <seconds>]): a script. One that mostly
# waits for processes to start and for deadlines takes one of ctest's places, whatever it starts; one that computes
# takes two. One that was late but right says so in its last line (MARK in support/late.py), which second_tries.py asks
# for: ctest counts it as skipped then, and it is run once more. (Engines warn of variables that begin with RONDE_ and are
# none of their settings.)
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
  set_tests_properties(${name} PROPERTIES PROCESSORS ${arg_PROCESSORS}
    SKIP_REGULAR_EXPRESSION "\nlate, to be tried again: [^\n]*\n$")
  get_test_property(${name} TIMEOUT limit)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT SECOND_TRIES_TEST=${name} SECOND_TRIES_LIMIT=${limit})
endfunction()
