// SPDX-License-Identifier: Apache-2.0
// Where an engine of this back end gets CUDA and NCCL from: the plug-in is linked with the real
// ones, its tests with fakes.
#pragma once

#include <memory>

#include "base/status.h"
#include "collectives/cuda/cuda_api.h"
#include "collectives/cuda/nccl_api.h"

namespace ronde::collectives::cuda {

[[nodiscard]] std::unique_ptr<CudaApi> make_cuda();

// Finds NCCL; kUnsupported: there is none.
base::Result<NcclApi> find_nccl();

// Frees memory of CudaApi::allocate_in on that device, from any thread, also when that CudaApi is
// gone. The caller's device stays current. A driver that is shutting down frees the memory itself.
void free_result(int device, void* memory);

}  // namespace ronde::collectives::cuda
