// SPDX-License-Identifier: Apache-2.0
// A leader's children at its door: who is expected, who is there, who has gone again. Only
// links/meeting.cc uses it.
#pragma once

#include <poll.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/wire/door.h"
#include "base/wire/frame_socket.h"

namespace ronde::runtime {

struct ExpectedChild {
  std::int32_t host = -1;
  std::string host_name;
};

// In steps, as a Door. It owns the accepted sockets until take(), and touches nothing else.
//
// Thread safety: none; one thread uses it.
class ChildReception {
 public:
  // host: this leader's own.
  ChildReception(base::DoorPlan door, std::vector<ExpectedChild> children, std::int32_t host);

  // Appends the descriptors to poll.
  void watch(std::vector<pollfd>& entries);
  // `entries`: those that watch() appended, after poll().
  base::Status step(std::span<const pollfd> entries, base::Instant now);

  [[nodiscard]] bool done() const { return missing_ == 0; }
  // In the order in which they were expected.
  std::vector<base::LinkEnd> take();
  [[nodiscard]] std::vector<std::int32_t> missing() const;
  // Logs one line for each reason for which connections were rejected.
  void report(const base::Log& log) { door_.report(log); }

 private:
  struct Child {
    ExpectedChild expected;
    std::string from;
    base::FileDescriptor socket;  // invalid: not connected yet
  };

  void let_in(base::Guest guest);

  base::Door door_;
  std::vector<Child> children_;
  std::vector<std::size_t> watched_children_;  // in the order in which watch() appended them
  std::int32_t host_;
  std::size_t missing_;
};

}  // namespace ronde::runtime
