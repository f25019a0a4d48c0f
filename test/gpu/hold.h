// SPDX-License-Identifier: Apache-2.0
// What a program's own kernels may do to a stream, and to the device.
#pragma once

#include <cuda_runtime_api.h>

namespace ronde::gpu_test {

// The stream stands still until *go, in pinned memory, is not 0.
void hold(const int* go, cudaStream_t stream);
// Every call of this process fails from then on.
void break_device(cudaStream_t stream);

}  // namespace ronde::gpu_test
