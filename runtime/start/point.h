// SPDX-License-Identifier: Apache-2.0
// A meeting point, and how it is written. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace ronde::runtime {

// Where ranks meet that MPI does not introduce: rank 0 listens there.
struct MeetingPoint {
  std::string host;  // a name or an address, without brackets
  std::uint16_t port = 0;
  // Every rank is on the host of rank 0, so that they meet at a Unix socket: the launcher says so,
  // or `host` is an address on which a host reaches itself alone.
  bool one_host = false;
  // The name of a Unix socket of ronderun's, at which every rank finds rank 0, on whichever host it
  // is; host and port are nothing then.
  std::string socket{};

  // Ranks meet at a Unix socket.
  [[nodiscard]] bool on_host() const { return one_host || !socket.empty(); }

  friend bool operator==(const MeetingPoint&, const MeetingPoint&) = default;
};

// "node1:29500", "[fd00::1]:29500"; "unix:NAME".
[[nodiscard]] std::string text_of(const MeetingPoint& point);
// The error begins with `what`, the name of what holds the text: "RONDE_MEET".
base::Result<MeetingPoint> parse_meeting_point(const std::string& what, const std::string& text);
// "localhost", an address in 127.0.0.0/8, or ::1.
[[nodiscard]] bool is_loopback(const std::string& host);

// A whole number from `least` to `most`; the error says that `name` (a variable, or a field of one)
// has this value and what was expected.
base::Result<std::int64_t> whole_number(const std::string& name, const std::string& text,
                                        std::int64_t least, std::int64_t most);

}  // namespace ronde::runtime
