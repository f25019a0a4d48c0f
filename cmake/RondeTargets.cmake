# SPDX-License-Identifier: Apache-2.0
# How a target of Ronde is built: the flags, the layer libraries and the programs.

# Sets the flags of every target. `-ffp-contract=off` is part of the promise that results do not depend
# on the compiler: a fused multiply-add rounds once where two operations round twice.
function(ronde_compile_options target)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
    C_STANDARD 11 C_STANDARD_REQUIRED ON
    POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE
    -ffp-contract=off
    -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wunused-const-variable=1>
    $<$<BOOL:${RONDE_WERROR}>:-Werror>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 warns of an overlap that does not exist in "text" + std::string (GCC bug 105651, mended in 13).
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(RONDE_SANITIZE)
    # g++ 12 warns of uninitialised reads that do not exist, in the code that the sanitizers insert.
    target_compile_options(${target} PRIVATE
      -fsanitize=${RONDE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
      -Wno-maybe-uninitialized)
    target_link_options(${target} PRIVATE -fsanitize=${RONDE_SANITIZE})
  endif()
endfunction()

# ronde_optimise(<source>...): sources of this folder's target that compute. A release optimises them as far as the
# compiler can; the rest stays at -O2, for three quarters of the time.
function(ronde_optimise)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
endfunction()

# What nearly every source includes.
set(RONDE_STANDARD_HEADERS <algorithm> <array> <atomic> <chrono> <cstddef> <cstdint> <cstring> <functional> <map>
  <memory> <mutex> <optional> <span> <string> <string_view> <utility> <vector>)

# ronde_compile_together(<target>): compiles its sources of a folder as one (twelve at most), for half of the time, once
# its CMakeLists.txt is read to the end. CMake's UNITY_BUILD does the same, but names sources by absolute paths: ccache
# would find nothing of it in another clone. And it counts sources over folders: a new one would have all compiled again.
function(ronde_compile_together target)
  cmake_language(EVAL CODE "cmake_language(DEFER CALL ronde_join_sources [[${target}]])")
  # A class of a source that is included by another looks like one of a header to the compiler.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
endfunction()

# What has flags of its own is joined with what has the same; what cannot be joined stays alone.
function(ronde_join_sources target)
  get_target_property(sources ${target} SOURCES)
  set(all)
  set(kinds)  # a folder and its flags; the sources of number i are in together_<i>
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE path)
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${path})
    cmake_path(GET name PARENT_PATH folder)
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR ${path} is_generated)
    get_source_file_property(flags ${path} COMPILE_OPTIONS)
    get_source_file_property(definitions ${path} COMPILE_DEFINITIONS)
    get_source_file_property(without_headers ${path} SKIP_PRECOMPILE_HEADERS)
    if(NOT name MATCHES "^[^.].*\\.cc$" OR is_generated OR definitions OR without_headers)
      list(APPEND all ${source})
      continue()
    endif()
    set(kind "${folder}")
    if(flags)
      list(JOIN flags " " flags)
      string(APPEND kind " ${flags}")
    endif()
    list(FIND kinds "${kind}" i)
    if(i EQUAL -1)
      list(LENGTH kinds i)
      list(APPEND kinds "${kind}")
    endif()
    list(APPEND together_${i} ${name})
  endforeach()
  set(i 0)
  foreach(kind IN LISTS kinds)
    list(LENGTH together_${i} count)
    math(EXPR batches "(${count} + 11) / 12")
    math(EXPR size "(${count} + ${batches} - 1) / ${batches}")
    foreach(n RANGE 1 ${batches})
      list(SUBLIST together_${i} 0 ${size} batch)
      list(REMOVE_ITEM together_${i} ${batch})
      list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n")
      list(JOIN batch "" text)
      separate_arguments(flags UNIX_COMMAND "${kind}")
      list(POP_FRONT flags folder)
      string(REGEX REPLACE "[^A-Za-z0-9]+" "_" file "${kind}")
      set(file ${CMAKE_CURRENT_BINARY_DIR}/${target}.together/${file}_${n}.cc)
      if(file IN_LIST all)
        message(FATAL_ERROR "${target}: two folders have the same name of a batch, ${file}")
      endif()
      file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
      if(flags)
        set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${flags}")
      endif()
      list(APPEND all ${file})
    endforeach()
    math(EXPR i "${i} + 1")
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${all}")
endfunction()

# ronde_precompile(<library>): parses the standard headers once for all libraries, and compiles up to twelve sources of a
# library at a time: together they take less than half of the time. A source that forgets an #include compiles all the
# same; lint and the preset debug find it.
function(ronde_precompile target)
  if(NOT RONDE_PRECOMPILED_HEADERS)
    return()
  endif()
  ronde_compile_together(${target})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 sees overflows that do not exist in the strings of precompiled headers, when it optimises.
    target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-array-bounds)
  endif()
  if(target STREQUAL "ronde_base")
    target_precompile_headers(ronde_base PRIVATE ${RONDE_STANDARD_HEADERS})
  else()
    target_precompile_headers(${target} REUSE_FROM ronde_base)
  endif()
endfunction()

# ronde_sources(<variable> <folder>): the sources below <folder> for this configuration. Folders cuda/, mpi/ and ucx/
# belong to plug-ins. A source mpi_x.cc has a twin no_mpi_x.cc behind the same header; exactly one of the two is
# built, so that no logic needs an #if.
function(ronde_sources variable folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/(cuda|mpi|ucx)/")
  if(RONDE_WITH_MPI)
    list(FILTER sources EXCLUDE REGEX "/no_mpi[^/]*\\.cc$")
  else()
    list(FILTER sources EXCLUDE REGEX "/mpi_[^/]*\\.cc$")
  endif()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# ronde_add_layer(<name> [LINKS <target>...]): the static library ronde_<name> of this folder's sources.
# A layer of headers only (or not written yet) becomes an interface library.
function(ronde_add_layer name)
  cmake_parse_arguments(arg "" "" "LINKS" ${ARGN})
  ronde_sources(sources ${CMAKE_CURRENT_SOURCE_DIR})
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  set(target ronde_${name})
  if(sources)
    add_library(${target} STATIC ${sources})
    ronde_compile_options(${target})
    ronde_precompile(${target})
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(${target} PUBLIC ${arg_LINKS} Threads::Threads)
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${target} INTERFACE ${arg_LINKS} Threads::Threads)
  endif()
endfunction()

# ronde_link_mpi(<target>): gives a layer MPI's C API, without MPI's deprecated C++ bindings.
function(ronde_link_mpi target)
  get_target_property(type ${target} TYPE)
  if(NOT RONDE_WITH_MPI OR type STREQUAL "INTERFACE_LIBRARY")
    return()
  endif()
  target_link_libraries(${target} PRIVATE MPI::MPI_C)
  target_compile_definitions(${target} PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
endfunction()

# ronde_add_plugin(<name> SOURCES <file>... LINKS <target>...): a plug-in beside libronde.so, in its folder once it is
# installed too. It exports its entry alone: what is linked in must not be mixed with other copies in the process.
function(ronde_add_plugin name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_library(${name} MODULE ${arg_SOURCES})
  ronde_compile_options(${name})
  # A library outside the loader's path is found where the linker found it, once installed too.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/plugin.map)
  target_link_libraries(${name} PRIVATE ${arg_LINKS})
  target_link_options(${name} PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/plugin.map
                      LINKER:-soname,lib${name}.so)
  if(NOT RONDE_SANITIZE)
    target_link_options(${name} PRIVATE LINKER:--no-undefined)
  endif()
endfunction()

# ronde_add_program(<name> SOURCES <file>... LINKS <target>...): a program in bin/.
function(ronde_add_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  ronde_compile_options(${name})
  target_link_libraries(${name} PRIVATE ${arg_LINKS})
endfunction()
