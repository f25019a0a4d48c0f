// SPDX-License-Identifier: Apache-2.0
// Executes batches of device tensors where the devices cannot reach each other: it copies them
// through host memory and uses the collectives of the data plane there. staged_chunks.h has
// allreduces and broadcasts, which are cut into chunks; all others are copied whole.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "collectives/device/device.h"
#include "collectives/plane/plane.h"
#include "runtime/execute/batch_parts.h"
#include "runtime/execute/staged_chunks.h"

namespace ronde::runtime {

// Every argument given by reference must outlive the collective. If the collective is destroyed
// before it is done, its copies go on, into the lanes and the caller's memory, until the device is
// aborted.
//
// Thread safety: only the agent calls it.
base::Result<std::unique_ptr<collectives::Collective>> stage(const ExecutableBatch& batch,
                                                             collectives::Device& device,
                                                             collectives::DataPlane& plane,
                                                             StagingLanes& lanes, std::int32_t rank,
                                                             std::int32_t size);

}  // namespace ronde::runtime
