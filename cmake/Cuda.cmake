# SPDX-License-Identifier: Apache-2.0
# What the GPU plug-in is built with: CUDA's toolkit and the headers of NCCL. Neither is needed to build the
# rest, nor on the machine that the plug-in runs on.
if(NOT "$ENV{RONDE_CUDA_ARCHITECTURES}" STREQUAL "")
  set(CMAKE_CUDA_ARCHITECTURES $ENV{RONDE_CUDA_ARCHITECTURES} CACHE STRING "Architectures of GPUs to compile for" FORCE)
elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # Code for A100 and H100, and PTX that the driver translates for newer GPUs.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90 CACHE STRING "Architectures of GPUs to compile for")
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(RONDE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(RONDE_NVCC)
  if(RONDE_NVCC)
    set(CMAKE_CUDA_COMPILER ${RONDE_NVCC})
  endif()
endif()
if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
enable_language(CUDA)
# 12.8 is the first with cudaGetDriverEntryPointByVersion and cudaStreamGetDevice.
find_package(CUDAToolkit 12.8 REQUIRED)
find_path(RONDE_NCCL_INCLUDE_DIR nccl.h REQUIRED HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME
          PATH_SUFFIXES include)
mark_as_advanced(RONDE_NCCL_INCLUDE_DIR)
