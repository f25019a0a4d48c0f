// SPDX-License-Identifier: Apache-2.0
// Batches of device tensors where the devices cannot reach each other: through host memory, with
// the collectives of the data plane. Allreduces and broadcasts are cut into chunks, so that one is
// reduced while the next is copied out and the one before copied in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "collectives/device/device.h"
#include "collectives/plane/plane.h"
#include "collectives/transport/collective.h"
#include "runtime/execute/batch_parts.h"

namespace ronde::runtime {

// Host memory for chunks, kept from batch to batch. Thread safety: belongs to the agent.
struct StagingLanes {
  static constexpr std::size_t kLanes = 3;
  // Large enough that starting a copy is nothing beside it, small enough to stay in the caches.
  static constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;

  std::vector<collectives::Staging> memory;
};

// All that is referred to must outlive the collective. Copies that it has begun may go on after its
// end, into the lanes and the user's memory, until the device is aborted.
base::Result<std::unique_ptr<collectives::Collective>> stage(const ExecutableBatch& batch,
                                                             collectives::Device& device,
                                                             DataPlane& plane, StagingLanes& lanes,
                                                             std::int32_t rank, std::int32_t size);

}  // namespace ronde::runtime
