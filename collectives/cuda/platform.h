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

// kUnsupported: there is none.
base::Result<NcclApi> find_nccl();

// Frees what CudaApi::allocate_in gave on that device, from any thread, also when that CudaApi is
// gone. The caller's device stays current. Where the driver is shutting down, the memory goes with
// it.
void free_result(int device, void* memory);

}  // namespace ronde::collectives::cuda
