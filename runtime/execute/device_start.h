// SPDX-License-Identifier: Apache-2.0
// How the ranks of a job start their device back end: each finds and opens its plug-in, and all
// agree on what came of it. It is used by every rank or by none, and nobody fails to start for it.
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

// What every rank said, by rank.
using Parts = std::vector<std::vector<std::byte>>;
// Job::allgather with a deadline.
using Exchange = std::function<base::Result<Parts>(std::span<const std::byte> mine)>;

struct DeviceStart {
  collectives::PluginPlace place;
  collectives::Device::Host host;  // without its allgather
  Exchange exchange;
};

struct StartedDevice {
  std::shared_ptr<collectives::Device> device;  // of all ranks, or of none
  bool direct = false;                          // the devices of all ranks can reach each other
  // What a tensor of a device is told when there is none: why.
  std::string none =
      "there is no device plug-in beside libronde.so, and RONDE_PLUGIN_PATH is empty";
  // For the log; empty when nobody has or wants a plug-in.
  std::string line;
  base::LogLevel level = base::LogLevel::kInfo;
};

// Once on every rank, when the engines open. An error: the ranks could not talk to each other.
base::Result<StartedDevice> start_device(DeviceStart start);

}  // namespace ronde::runtime
