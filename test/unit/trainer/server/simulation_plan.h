// SPDX-License-Identifier: Apache-2.0
// What happens in a run of the servers' simulation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bindings/trainer/server/protocol.h"

namespace ronde::trainer::server {

inline constexpr std::uint32_t kWorkers = 3;
inline constexpr std::uint64_t kSteps = 8;  // of a worker
inline constexpr std::size_t kElements = 128;

struct Plan {
  ModeOptions mode;
  std::uint32_t servers = 2;
  bool standby = true;
  bool kills_server = false;
  bool restarts_server = false;  // that one, at once, without its variables
  // The chief dies with that server, and both, or it alone, are there again soon.
  bool kills_chief = false;
  int kills = 0;   // of workers that come back
  int pauses = 0;  // of workers, for longer than their time-out; what is sent to them waits
  // And of all: the chief is killed so often, and it and servers stand still so often.
  int chief_kills = 0;
  int other_pauses = 0;
  double loss = 0.0;
  double twice = 0.0;
};

}  // namespace ronde::trainer::server
