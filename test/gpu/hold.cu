// SPDX-License-Identifier: Apache-2.0
// Kernels of the checks: one that holds its stream, one that breaks the device.
#include <cuda_runtime.h>

#include "test/gpu/hold.h"

namespace ronde::gpu_test {

namespace {

__global__ void wait_for(const volatile int* go) {
  while (*go == 0) __nanosleep(10'000);
}

__global__ void write_to(int* nowhere) { *nowhere = 1; }

}  // namespace

void hold(const int* go, cudaStream_t stream) { wait_for<<<1, 1, 0, stream>>>(go); }

void break_device(cudaStream_t stream) {
  write_to<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(16));
}

}  // namespace ronde::gpu_test
