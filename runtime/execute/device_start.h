// SPDX-License-Identifier: Apache-2.0
// How the ranks of a job start their device back end: each finds and opens its plug-in, and all
// agree on the outcome. The device is used by every rank or by none; without one the engine still
// starts.
//
// Thread safety: only the thread that opens the engine calls these functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "collectives/device/device.h"
#include "collectives/device/plugin_library.h"

namespace ronde::runtime {

// Every rank's bytes, by rank.
using Parts = std::vector<std::vector<std::byte>>;
// Job::allgather with a deadline.
using AllgatherParts = std::function<base::Result<Parts>(std::span<const std::byte> mine)>;

struct DeviceStart {
  collectives::PluginPlace place;
  collectives::Device::Host host;  // without its allgather
  AllgatherParts exchange;
};

struct StartedDevice {
  std::shared_ptr<collectives::Device> device;  // set on all ranks or on none
  bool direct = false;                          // the devices of all ranks can reach each other
  // Where there is no device: the reason, for the error of a device tensor.
  std::string none =
      "there is no device plug-in beside libronde.so, and RONDE_PLUGIN_PATH is empty";
  // A line for the log; empty when no rank has or wants a plug-in.
  std::string line;
  base::LogLevel level = base::LogLevel::kInfo;
};

// Collective, once, when the engines open. Returns an error only if the exchange between the ranks
// failed.
base::Result<StartedDevice> start_device(DeviceStart start);

}  // namespace ronde::runtime
