// SPDX-License-Identifier: Apache-2.0
// Calls of CUDA's own, and whether there is a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>

namespace ronde::gpu_test {

inline bool good(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return true;
  std::printf("  %s: %s\n", doing, cudaGetErrorString(error));
  return false;
}

inline bool has_gpu() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

}  // namespace ronde::gpu_test
