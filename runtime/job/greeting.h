// SPDX-License-Identifier: Apache-2.0
// The greeting that the ranks of a job exchange at the start: from it every rank learns the shape
// of the job, and leaders find each other. Plain values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/job_shape.h"
#include "base/status.h"
#include "collectives/transport/roll.h"
#include "runtime/job/rank_table.h"
#include "runtime/links/meeting.h"

namespace ronde::runtime {

struct Greeting {
  std::string settings;
  std::vector<int> processors;  // the ones that it may use
  std::int32_t leader = -1;     // the first rank of its host
  std::string host_name;
  std::string socket_name;  // from a leader: where the ranks of its host fetch the board
  // From a leader: where other leaders reach it; in the verdict after the meeting its own address
  // on the links.
  std::vector<std::string> addresses;
  std::array<std::byte, 16> seed{};   // from rank 0: of it the leaders' secret is made
  collectives::StartTrouble trouble;  // why this rank cannot go on
  std::int64_t pid = 0;
  std::vector<std::byte> transport;  // the address of its end of the transport
};

[[nodiscard]] std::vector<std::byte> encode(const Greeting& greeting);
// An error names `rank` as one that runs another version.
base::Result<Greeting> decode_greeting(std::span<const std::byte> bytes, std::int32_t rank);

// Where the ranks are. Here and below greetings[r] is rank r's.
base::Result<base::JobShape> shape_of(std::span<const Greeting> greetings);
// The leaders' addresses, by host.
[[nodiscard]] std::vector<LeaderAddress> leaders_of(std::span<const Greeting> greetings,
                                                    const base::JobShape& shape);
// Where each rank runs; verdicts[r] is what rank r sent after the meeting.
[[nodiscard]] RankTable ranks_of(std::span<const Greeting> greetings,
                                 std::span<const Greeting> verdicts, const base::JobShape& shape);
// How many cores these ranks of one host may use together.
[[nodiscard]] std::int64_t cores_of(std::span<const Greeting> greetings,
                                    std::span<const int> ranks);

// Which rank is where, as text for people: a line for the job, and one for each host. `slot_bytes`:
// of one slot on the board. `transport`: what carries tensors where memory is not shared, and why;
// empty on a single host.
[[nodiscard]] std::string table_of(std::span<const Greeting> greetings, const base::JobShape& shape,
                                   std::int64_t slot_bytes, const std::string& transport);

}  // namespace ronde::runtime
