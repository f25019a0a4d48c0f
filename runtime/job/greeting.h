// SPDX-License-Identifier: Apache-2.0
// What the ranks of a job tell each other at the start, in one exchange over MPI: enough for every
// rank to know the shape of the job, and for leaders to find each other. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/two_level/job_shape.h"
#include "runtime/links/meeting.h"

namespace ronde::runtime {

struct Greeting {
  std::string settings;
  std::string processors;  // that it may use
  std::string leader;      // the first rank of its host
  std::string host_name;
  std::string socket_name;  // from a leader: where the ranks of its host fetch the board
  std::string addresses;    // from a leader: where other leaders reach it, separated by blanks
  std::string secret;       // from rank 0: what the leaders know each other by
  std::string trouble;      // why this rank cannot go on
  std::string culprit;      // the rank whose fault that is, if it is known

  friend bool operator==(const Greeting&, const Greeting&) = default;
};

[[nodiscard]] std::vector<std::byte> encode(const Greeting& greeting);
// An error says that this rank runs another version.
base::Result<Greeting> decode_greeting(std::span<const std::byte> bytes, std::int32_t rank);

// By rank, as all that follows.
base::Result<collectives::JobShape> shape_of(std::span<const Greeting> greetings);
// By host.
[[nodiscard]] std::vector<LeaderAddress> leaders_of(std::span<const Greeting> greetings,
                                                    const collectives::JobShape& shape);
// How many cores these ranks of one host may use together.
[[nodiscard]] std::int64_t cores_of(std::span<const Greeting> greetings,
                                    std::span<const int> ranks);

// Who is where, for people: a line for the job, and one for each host.
[[nodiscard]] std::string table_of(std::span<const Greeting> greetings,
                                   const collectives::JobShape& shape, std::int64_t slot_bytes);

// The secret of the job, in text.
[[nodiscard]] std::string hex_of(const JobSecret& secret);
base::Result<JobSecret> secret_of_hex(const std::string& text);

}  // namespace ronde::runtime
