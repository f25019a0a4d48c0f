// SPDX-License-Identifier: Apache-2.0
// The links of one leader to its neighbours in the tree of hosts, as a control node sees them:
// messages in, messages out, and which connections have ended. An implementation carries them over
// sockets in a job (links/tcp_links.h), or through memory in a simulation.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/links/link_messages.h"

namespace ronde::runtime {

// How long a neighbour may take to answer a roll call.
inline constexpr base::Nanoseconds kRollCallGrace = std::chrono::seconds(1);

// Thread safety: none; only the agent uses it. No function blocks.
class Links {
 public:
  // On which side of the tree a neighbour is.
  enum class From : std::uint8_t { kParent, kChild };

  virtual ~Links() = default;

  [[nodiscard]] virtual std::int32_t children() const = 0;

  // Hands every message that has arrived to `take`, and returns how many there were. Stops at the
  // first error of `take` and returns it.
  using Take = std::function<base::Status(From, const LinkMessage&)>;
  virtual base::Result<int> poll(const Take& take) = 0;

  virtual base::Status send_up(const LinkMessage& message) = 0;
  virtual base::Status send_down(const LinkMessage& message) = 0;
  // To the child `host`, or, where it is none, to all of them: it may be below any.
  virtual base::Status send_towards(std::int32_t /*host*/, const LinkMessage& message) {
    return send_down(message);
  }
  // Writes queued messages as far as the connections have room. True: nothing is left.
  virtual base::Result<bool> flush() = 0;

  // A neighbour whose connection has ended, so that nothing more arrives from it. take_lost()
  // returns each once.
  struct Lost {
    From side = From::kParent;
    std::int32_t host = -1;
    std::string peer;
    std::string reason;     // the kernel's error text; empty: closed in order
    bool good_bye = false;  // its leader has sent a GoodBye before
  };
  [[nodiscard]] virtual std::optional<Lost> take_lost() = 0;

  // Asks every neighbour whether it runs; poll() answers when a neighbour asks.
  virtual base::Status call_roll() = 0;
  // The neighbours that have not answered the last roll call.
  [[nodiscard]] virtual std::vector<Lost> silent() const = 0;
};

}  // namespace ronde::runtime
