// SPDX-License-Identifier: Apache-2.0
// The meeting of ranks that MPI does not introduce: rank 0 listens at a meeting point, every other
// rank comes with its greeting and is sent everybody's. The connections stay until the start is
// over; nothing listens once all ranks have come. Over hosts the ranks need a secret; on one host
// they meet at a Unix socket of their user.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collectives/transport/meeting.h"
#include "runtime/links/tcp_socket.h"
#include "runtime/meet/messages.h"
#include "runtime/meet/point.h"
#include "runtime/meet/secret.h"

namespace ronde::runtime {

struct MeetingPlan {
  std::int32_t rank = 0;
  std::int32_t size = 1;
  MeetingPoint point;
  std::string launcher;    // who gave rank and size, for people
  MeetingSecret secret;    // needed unless all ranks are on one host
  std::string interfaces;  // RONDE_INTERFACE: where rank 0 listens
  Keepalive keepalive;
  base::Log log;
};

// Returns when every rank has come, or the deadline has passed. Every rank gets the error of one:
// a rank that does not come (kDeadline, with the rank), one that dies (kPeerFailed), comes twice or
// was told another size (kInvalidArgument). Rank 0 fails at once where it cannot listen; a rank
// whose secret is not rank 0's fails at once. Everything else that keeps a rank from rank 0 (it is
// not there yet, its name is not known yet) is tried again until the deadline.
base::Result<std::unique_ptr<collectives::Meeting>> meet(const MeetingPlan& plan,
                                                         const base::Clock& clock,
                                                         base::Instant deadline);

// ---- what both ends share ----

// "localhost:29500 (torchrun or one like it)".
[[nodiscard]] std::string text_of(const MeetingPlan& plan);
// This process's hello.
[[nodiscard]] MeetingHello hello_of(const MeetingPlan& plan);
// How long a rank that has so much time left waits before it is told what is missing: short enough
// that the answer arrives in time.
[[nodiscard]] base::Nanoseconds patience_of(base::Nanoseconds left);
// The ranks whose host identity is that of `rank`, ascending. The hellos are by rank.
[[nodiscard]] std::vector<int> ranks_on_host_of(std::span<const MeetingHello> hellos,
                                                std::int32_t rank);
[[nodiscard]] std::vector<std::string> host_names_of(std::span<const MeetingHello> hellos);
// The milliseconds for poll(): until the deadline, but short enough to look at the clock again.
[[nodiscard]] int poll_milliseconds(const base::Clock& clock, base::Instant deadline);

// The two ends; meet() chooses.
base::Result<std::unique_ptr<collectives::Meeting>> meet_as_rank_0(const MeetingPlan& plan,
                                                                   const base::Clock& clock,
                                                                   base::Instant deadline);
base::Result<std::unique_ptr<collectives::Meeting>> meet_rank_0(const MeetingPlan& plan,
                                                                const base::Clock& clock,
                                                                base::Instant deadline);

}  // namespace ronde::runtime
