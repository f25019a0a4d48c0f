// SPDX-License-Identifier: Apache-2.0
// Batches of device tensors where the devices cannot reach each other: through host memory, with
// the collectives of the data plane. Allreduces and broadcasts are cut into chunks, so that one is
// reduced while the next is copied out and the one before copied in.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "collectives/device/device.h"
#include "collectives/plane/plane.h"
#include "runtime/execute/batch_parts.h"
#include "runtime/execute/staged_chunks.h"

namespace ronde::runtime {

// All that is referred to must outlive the collective. Copies that it has begun may go on after its
// end, into the lanes and the user's memory, until the device is aborted.
base::Result<std::unique_ptr<collectives::Collective>> stage(const ExecutableBatch& batch,
                                                             collectives::Device& device,
                                                             collectives::DataPlane& plane,
                                                             StagingLanes& lanes, std::int32_t rank,
                                                             std::int32_t size);

}  // namespace ronde::runtime
