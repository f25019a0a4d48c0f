// SPDX-License-Identifier: Apache-2.0
// The moves of an all-to-all whose lengths are known: all_to_all.h tells the algorithm.
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

// Blocks by rank; two ranks give the block that they share the same length. Requests point at the
// workspace only. Within a pair and a direction messages keep their order, so one tag is enough.
//
// It cannot get stuck: take the least (distance, segment) that is not finished anywhere. Both of
// its ends have finished everything before it, so both have a place for it in flight.
//
// Thread safety: one thread at a time (whoever has the agent's role).
class PairwiseExchange {
 public:
  using Inputs = std::vector<std::span<const std::byte>>;
  using Outputs = std::vector<std::span<std::byte>>;

  PairwiseExchange(Transport& transport, Workspace& workspace, Inputs inputs, Outputs outputs,
                   base::Bytes segment, int tag);

  // As Collective::step().
  base::Result<StepResult> step();

 private:
  // Walks over the segments of one direction: by distance, and those of a block in their order.
  struct Cursor {
    int distance = 1;
    std::int64_t segment = 0;
  };
  struct Flight {
    RequestSlot request;
    std::byte* buffer = nullptr;
    int peer = 0;             // of a receive
    fusion::ByteRange range;  // of the peer's block
  };
  using Flights = std::array<Flight, kSegmentsInFlight>;

  [[nodiscard]] base::Status start();
  // Each takes at most one segment, so that a step stays short, and says whether something
  // happened.
  bool copy_own();
  base::Result<bool> send_next();
  base::Result<bool> receive_next();
  base::Status post_receives();

  [[nodiscard]] int further(int distance) const;
  [[nodiscard]] int before(int distance) const;
  // Goes over blocks that have ended. The range is empty when there are no more.
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
  Cursor receiving_;  // the next to post
  std::int64_t posted_ = 0;
  std::int64_t taken_ = 0;
  Flights receives_;  // number i in place i modulo their number
};

}  // namespace ronde::collectives
