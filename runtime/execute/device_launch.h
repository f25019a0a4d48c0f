// SPDX-License-Identifier: Apache-2.0
// Gives a batch of device tensors to the device, where the devices of all ranks reach each other.
//
// Thread safety: only the agent calls these functions.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "collectives/device/device.h"
#include "collectives/plane/plane.h"
#include "collectives/transport/collective.h"
#include "runtime/execute/batch.h"

namespace ronde::runtime {

// The result of a launch.
struct Launched {
  collectives::DeviceWorkPtr work;  // in progress on the device; nullptr: not launched, because of
  base::Status refused;             // this error, which every rank gets before it begins
};

// Returns a collective that is done when the device has the batch; the result is in `launched`
// then. Where only each rank knows its rows, the ranks first tell each other through the plane.
// Every argument given by reference must outlive the collective.
std::unique_ptr<collectives::Collective> launch_on_device(const Batch& batch,
                                                          collectives::Device& device,
                                                          collectives::DataPlane& plane,
                                                          std::int32_t rank, Launched& launched);

// Describes a tensor of the device for the plug-in.
[[nodiscard]] ronde_plugin_tensor plugin_tensor(const base::TensorView& view,
                                                const collectives::ReadyMarkPtr& ready);

}  // namespace ronde::runtime
