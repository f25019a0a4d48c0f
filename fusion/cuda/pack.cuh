// SPDX-License-Identifier: Apache-2.0
// Packing on a GPU: many tensors to or from one buffer, scaled and cast on the way, in one kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "fusion/tiles.h"

namespace ronde::fusion::cuda {

// What happens to every element: it is read as `from`, multiplied by `scale` in f32 (f64 for f64)
// if that is not 1, and rounded to `to`. Either the types are equal, or one is f32 and the other
// f16 or bf16. Types that are neither are copied and refuse a scale.
struct PackKind {
  base::DType from = base::DType::kF32;
  base::DType to = base::DType::kF32;
  double scale = 1.0;
};

// Puts the copies into the stream: as many launches as the parameters of a kernel have room for
// pieces (one for up to kMostPieces). Memory may have any alignment that its type allows.
// `multiprocessors` is the device's number of them. Returns cudaErrorInvalidValue for a kind that
// does not exist.
inline constexpr int kMostPieces = 1360;
cudaError_t pack(std::span<const PackPiece> pieces, const PackKind& kind, int multiprocessors,
                 cudaStream_t stream);

// Loads the kernels onto the current device, which the first launch would do otherwise, and may
// wait for the whole device for. Returns what CUDA says where there is no code for it.
cudaError_t prepare();

}  // namespace ronde::fusion::cuda
