// SPDX-License-Identifier: Apache-2.0
// The links of one leader to its neighbours in the tree of hosts, as a lead sees them: messages in,
// messages out, and who is gone. What carries them is somebody else's business: sockets in a job
// (leader_links.h), memory in a simulation.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/link_messages.h"

namespace ronde::runtime {

// How long a neighbour may take to answer a roll call.
inline constexpr base::Nanoseconds kRollCallGrace = std::chrono::seconds(1);

// Thread safety: belongs to the agent.
class LeadLinks {
 public:
  // Who sent something.
  enum class From : std::uint8_t { kParent, kChild };

  virtual ~LeadLinks() = default;

  [[nodiscard]] virtual std::int32_t children() const = 0;

  // Reads every message that has arrived. An error of `take` ends it and is returned.
  using Take = std::function<base::Status(From, const LinkMessage&)>;
  virtual base::Result<int> poll(const Take& take) = 0;

  virtual base::Status send_up(const LinkMessage& message) = 0;
  virtual base::Status send_down(const LinkMessage& message) = 0;
  // Hands on what was sent, as far as there is room. True: nothing is left.
  virtual base::Result<bool> flush() = 0;

  // A neighbour whose connection has ended, once for each: nothing more comes from it.
  struct Lost {
    From who = From::kParent;
    std::int32_t host = -1;
    std::string peer;
    std::string reason;     // why, as the kernel has it
    bool good_bye = false;  // its leader has said good-bye before
  };
  [[nodiscard]] virtual std::optional<Lost> take_lost() = 0;

  // Asks every neighbour whether it is there, and answers such questions in poll().
  virtual base::Status call_roll() = 0;
  // The neighbours that have not answered the last roll call.
  [[nodiscard]] virtual std::vector<Lost> silent() const = 0;
};

}  // namespace ronde::runtime
