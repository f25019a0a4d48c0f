// SPDX-License-Identifier: Apache-2.0
// What a start of a job is made of. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/agent/messages.h"

namespace ronde::launcher {

// The part of one host.
struct HostPlan {
  std::string host;  // as the user wrote it
  bool here = true;
  StartRanks start;
};

struct JobPlan {
  std::vector<HostPlan> hosts;  // that of rank 0 comes first
  std::int32_t ranks = 0;
  bool tag = false;
  // What starts a program on another host; the name of the host takes the place of {host}, or
  // follows.
  std::vector<std::string> start_command;
  std::string agent_program;          // ronderun, there
  base::Nanoseconds start_timeout{};  // for an agent to answer
  base::Nanoseconds link_timeout{};
  base::Nanoseconds stop_grace{};
};

}  // namespace ronde::launcher
