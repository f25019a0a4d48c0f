# SPDX-License-Identifier: Apache-2.0
# g++ 12 is the compiler Ronde is tested with. Where it is installed and the user asked for no other one
# (CMAKE_CXX_COMPILER, CC or CXX), it is taken, so that every build of one tree uses the same compiler.
# Runs before project().
if(NOT DEFINED CMAKE_CXX_COMPILER AND NOT DEFINED CMAKE_C_COMPILER
   AND NOT DEFINED ENV{CXX} AND NOT DEFINED ENV{CC})
  find_program(RONDE_GXX12 g++-12)
  find_program(RONDE_GCC12 gcc-12)
  mark_as_advanced(RONDE_GXX12 RONDE_GCC12)
  if(RONDE_GXX12 AND RONDE_GCC12)
    set(CMAKE_CXX_COMPILER ${RONDE_GXX12})
    set(CMAKE_C_COMPILER ${RONDE_GCC12})
  endif()
endif()

# Compiles through ccache where it is installed: every build of a tree has the same command lines, with ccache or
# without, so that what one has compiled no other compiles again. Another launcher of the user's stays.
if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
  foreach(language C CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_${language}_COMPILER_LAUNCHER})
      set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/compiler_cache)
    endif()
  endforeach()
endif()
