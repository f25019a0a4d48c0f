// SPDX-License-Identifier: Apache-2.0
// Executes batches of device tensors where the devices cannot reach each other: it copies them out
// to host memory, makes the same exchange there, and copies the outputs in. Tensors that move as
// one do so in chunks, one of which moves while the next is copied out and the one before copied
// in; all others are copied whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/numbers.h"
#include "base/status.h"
#include "base/tensor.h"
#include "collectives/device/device.h"
#include "collectives/plane/plane.h"
#include "collectives/transport/collective.h"
#include "runtime/execute/batch.h"

namespace ronde::runtime {

// Host memory for chunks, kept from batch to batch.
//
// Thread safety: none; only the agent uses it.
struct StagingLanes {
  static constexpr std::size_t kLanes = 3;
  // Large enough that the cost of starting a copy does not count, small enough to stay in the
  // caches.
  static constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;

  std::vector<collectives::Staging> memory;
};

// A part of one tensor, and where it lies in its chunk.
struct ChunkPart {
  std::size_t tensor = 0;  // the index of its view in the batch
  std::int64_t begin = 0;  // elements
  base::Elements elements;
  std::int64_t offset = 0;  // bytes, a multiple of 64

  friend bool operator==(const ChunkPart&, const ChunkPart&) = default;
};

// Cuts tensors into chunks of at most `chunk_bytes`, a multiple of 64. All ranks cut alike, because
// only sizes count. Pure.
[[nodiscard]] std::vector<std::vector<ChunkPart>> cut_into_chunks(
    const std::vector<base::TensorView>& tensors, std::int64_t chunk_bytes);

// Every argument given by reference must outlive the collective. If the collective is destroyed
// before it is done, its copies go on, into the lanes and the caller's memory, until the device is
// aborted.
//
// Thread safety: only the agent calls it.
base::Result<std::unique_ptr<collectives::Collective>> stage(const Batch& batch,
                                                             collectives::Device& device,
                                                             collectives::DataPlane& plane,
                                                             StagingLanes& lanes,
                                                             std::int32_t rank);

}  // namespace ronde::runtime
