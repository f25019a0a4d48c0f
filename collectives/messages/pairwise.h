// SPDX-License-Identifier: Apache-2.0
// The exchange of blocks of known lengths, pair by pair, of which an all-to-all makes two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/numbers.h"
#include "base/status.h"
#include "collectives/messages/segment_plan.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/request_slot.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "fusion/chunks.h"

namespace ronde::collectives {

// Inputs and outputs are blocks by rank; two ranks give the block that they share the same length.
// The blocks are the caller's; requests point at the workspace only. Within a pair and a direction
// messages keep their order, so one tag is enough.
//
// It cannot get stuck: consider the least (distance, segment) that is not finished on all ranks.
// Both of its ends have finished everything before it, so both have a place for it in flight.
//
// Thread safety: one thread at a time (whoever has the agent's role).
class PairwiseExchange {
 public:
  using Inputs = std::vector<std::span<const std::byte>>;
  using Outputs = std::vector<std::span<std::byte>>;

  PairwiseExchange(Transport& transport, Workspace& workspace, Inputs inputs, Outputs outputs,
                   base::Bytes segment, int tag);

  // Has the contract of Collective::step().
  base::Result<StepResult> step();

 private:
  // The next segment in one direction: segments are ordered by distance, and within a block.
  struct Cursor {
    int distance = 1;
    std::int64_t segment = 0;
  };
  struct Flight {
    RequestSlot request;
    std::byte* buffer = nullptr;
    int peer = 0;             // the sender, for a receive
    fusion::ByteRange range;  // the bytes of the peer's block
  };
  using Flights = std::array<Flight, kSegmentsInFlight>;

  [[nodiscard]] base::Status start();
  // Each moves at most one segment, so that a step stays short, and returns whether something
  // happened.
  bool copy_own();
  base::Result<bool> send_next();
  base::Result<bool> receive_next();
  base::Status post_receives();

  [[nodiscard]] int rank_after(int distance) const;
  [[nodiscard]] int rank_before(int distance) const;
  // Returns the bytes at the cursor, which it moves over finished blocks; empty when no more are
  // left.
  template <class Blocks, class Peer>
  fusion::ByteRange range_at(Cursor& cursor, const Blocks& blocks, Peer peer) const;

  Transport& transport_;
  WorkspaceLease memory_;
  Inputs inputs_;
  Outputs outputs_;
  base::Bytes segment_;
  int tag_;
  bool started_ = false;

  std::int64_t own_segment_ = 0;
  Cursor sending_;
  Flights sends_;
  Cursor receiving_;  // the next receive to post
  std::int64_t posted_ = 0;
  std::int64_t taken_ = 0;
  Flights receives_;  // receive i uses place i % kSegmentsInFlight
};

}  // namespace ronde::collectives
