// SPDX-License-Identifier: Apache-2.0
// The messages between the leaders of hosts, one in each frame of a link. Plain values and pure
// functions.
//
// Up the tree go the announcements of ranks, unchanged, and what a whole subtree has in common:
// that all of its ranks are ready for a planned entry, and which had arrived at one that was
// closed. A node sends these once for itself and everything below it, so that the root does not
// read more when there are more hosts. Down go the decisions, unchanged. A failure goes in both
// directions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "base/status.h"
#include "collectives/board/board.h"
#include "runtime/tensors/lateness.h"
#include "runtime/tensors/step_number.h"

namespace ronde::runtime {

// An encoded announcement of this rank.
struct RelayedAnnouncement {
  std::int32_t rank = 0;
  std::vector<std::byte> announcement;
};

// All ranks of this subtree have counted themselves in on this entry, in these steps, so long ago
// (ages).
struct ReadyReport {
  std::int32_t entry = 0;
  std::uint32_t generation = 0;
  StepSpan steps{};
  ArrivalSpan arrivals{};
};

// The answer to a CloseDecision: how many ranks of this subtree had counted themselves in before,
// and which, as far as it is known (exact for ranks that have stopped submitting).
struct ClosedReport {
  std::int32_t entry = 0;
  std::uint32_t generation = 0;  // the new one
  std::uint32_t arrived = 0;
  std::vector<std::int64_t> ranks;
  std::vector<std::int64_t> steps{};  // of these ranks, as words
};

// An encoded decision.
struct RelayedDecision {
  std::vector<std::byte> decision;
};

// "Are you running?", and the answer. The kernel keeps the connection of a stopped process alive,
// so only an answer of the process itself shows that it runs.
struct RollCall {
  bool answer = false;
};

// The last message of a leader that closes its engine: the end of its connection is no failure.
struct GoodBye {};

// Something for rank `to` of the job alone, of the job (number 0) or of process set `number`. From
// 0 or above: a record of a message of that rank, counted in the set (messages/far_channel.h);
// else a link message of the set. It goes up to the root, unless it meets the host of that rank
// before, and down from there.
struct Frame {
  std::int32_t number = 0;
  std::int32_t from = -1;
  std::int32_t to = 0;
  std::vector<std::byte> message{};
};

using LinkMessage = std::variant<RelayedAnnouncement, ReadyReport, ClosedReport, RelayedDecision,
                                 collectives::FailureRecord, RollCall, GoodBye, Frame>;

// Two leaders tell each other which host each leads.
struct LeaderHello {
  static constexpr std::uint32_t kVersion = 6;

  std::uint32_t version = kVersion;
  std::int32_t host = -1;

  friend bool operator==(const LeaderHello&, const LeaderHello&) = default;
};

[[nodiscard]] std::vector<std::byte> encode(const LeaderHello& hello);
base::Result<LeaderHello> decode_leader_hello(std::span<const std::byte> bytes);

// Encoding never fails. Decoding accepts exactly what encoding makes: for anything else it returns
// an error (kInternal) that names the byte, and uses no more memory than the message is long.
[[nodiscard]] std::vector<std::byte> encode(const LinkMessage& message);
base::Result<LinkMessage> decode_link_message(std::span<const std::byte> bytes);

}  // namespace ronde::runtime
