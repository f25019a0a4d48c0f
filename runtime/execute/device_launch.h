// SPDX-License-Identifier: Apache-2.0
// Puts a batch of device tensors on its way where the devices of all ranks reach each other.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "collectives/device/device.h"
#include "collectives/plane/plane.h"
#include "collectives/transport/collective.h"
#include "runtime/execute/batch_parts.h"

namespace ronde::runtime {

// What came of a launch.
struct Launched {
  collectives::DeviceWorkPtr work;  // under way from now on, or nullptr:
  base::Status refused;             // no device can do it, and no rank has begun
};

// A collective that is done when the device has the batch; the result is in `launched` then. Of an
// all-to-all the ranks first tell each other, through the plane, how much they send. All that is
// referred to must outlive it.
std::unique_ptr<collectives::Collective> launch_on_device(const ExecutableBatch& batch,
                                                          collectives::Device& device,
                                                          collectives::DataPlane& plane,
                                                          std::int32_t rank, std::int32_t size,
                                                          Launched& launched);

// A tensor of the device as the plug-in sees it.
[[nodiscard]] ronde_plugin_tensor plugin_tensor(const base::TensorView& view,
                                                const collectives::ReadyMarkPtr& ready);

}  // namespace ronde::runtime
