// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/ring.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "collectives/messages/ordered_sum.h"
#include "collectives/messages/ring_plan.h"
#include "collectives/messages/segment_lanes.h"
#include "collectives/transport/request_slot.h"

namespace ronde::collectives {
namespace {

using fusion::ByteRange;

// Chunks are cut into segments, and segment k of every chunk travels round the ring by itself. A
// lane carries its segments one after another through all turns, and `position` counts these turns.
// Positions use two buffers alternately: while one is being sent, the next segment is received into
// the other.
struct RingLane : SegmentLane<2> {
  std::int64_t position = 0;          // the next turn to take
  std::int64_t receive_position = 0;  // the next turn to post a receive for: at most one ahead
  std::array<RequestSlot, 2> receiving;
  std::array<RequestSlot, 2> sending;
};

// The turn of a position of a lane, and the bytes of its chunk.
struct Place {
  RingTurn turn;
  ByteRange range;
};

class Ring final : public Collective {
 public:
  Ring(Transport& transport, Workspace& workspace, RingKind kind, OrderedSum arithmetic,
       base::Bytes segment, int tag);

  base::Result<StepResult> step() override;

 private:
  [[nodiscard]] std::int64_t end_of(const RingLane& lane) const {
    return lane.of.segments * plan_.turns();
  }
  [[nodiscard]] Place place(const RingLane& lane, std::int64_t position) const;
  // The part of a buffer that carries a range.
  [[nodiscard]] std::span<std::byte> message(const RingLane& lane, std::size_t buffer,
                                             const ByteRange& range) const;

  // Each returns whether something happened.
  base::Result<bool> advance(RingLane& lane);
  base::Result<bool> test_sends(RingLane& lane);
  base::Status post_receives(RingLane& lane);
  base::Result<bool> take_turn(RingLane& lane);

  [[nodiscard]] bool is_done(const RingLane& lane) const {
    return lane.position == end_of(lane) && !lane.sending[0].busy() && !lane.sending[1].busy();
  }

  Transport& transport_;
  RingPlan plan_;
  OrderedSum arithmetic_;
  base::Bytes segment_;  // of the view
  std::int64_t segments_;
  int tag_;
  SegmentLanes<RingLane> lanes_;
};

Ring::Ring(Transport& transport, Workspace& workspace, RingKind kind, OrderedSum arithmetic,
           base::Bytes segment, int tag)
    : transport_(transport),
      plan_(kind, transport.rank(), transport.size()),
      arithmetic_(std::move(arithmetic)),
      tag_(tag),
      lanes_(workspace) {
  base::check_eq(arithmetic_.view().chunks(), transport.size(), "ring: one chunk per rank");
  const base::Bytes largest = arithmetic_.view().largest_chunk();
  segment_ = segment_length(arithmetic_.in_view(std::min(segment, largest)), largest);
  segments_ = base::ceil_div(largest.value(), segment_.value());
}

base::Result<StepResult> Ring::step() {
  if (!lanes_.is_open()) {
    RONDE_RETURN_IF_ERROR(lanes_.open(transport_, segments_, arithmetic_.on_wire(segment_)));
  }
  return lanes_.step([this](RingLane& lane) { return advance(lane); },
                     [this](const RingLane& lane) { return is_done(lane); });
}

base::Result<bool> Ring::advance(RingLane& lane) {
  RONDE_ASSIGN_OR_RETURN(const auto ended, test_sends(lane));
  RONDE_RETURN_IF_ERROR(post_receives(lane));
  RONDE_ASSIGN_OR_RETURN(const auto taken, take_turn(lane));
  // The turn made room for the receive after the next: posted now, it can proceed until the next
  // step.
  if (taken) RONDE_RETURN_IF_ERROR(post_receives(lane));
  return ended || taken;
}

Place Ring::place(const RingLane& lane, std::int64_t position) const {
  const RingTurn turn = plan_.turn(static_cast<int>(position % plan_.turns()));
  const std::int64_t segment = lane.of.segment(position / plan_.turns());
  return {turn, segment_of(arithmetic_.view().chunk_bytes(turn.chunk), segment_, segment)};
}

std::span<std::byte> Ring::message(const RingLane& lane, std::size_t buffer,
                                   const ByteRange& range) const {
  return {lane.buffers[buffer], arithmetic_.on_wire(base::Bytes(range.length())).size()};
}

base::Result<bool> Ring::test_sends(RingLane& lane) {
  bool any = false;
  for (RequestSlot& slot : lane.sending) {
    RONDE_ASSIGN_OR_RETURN(const auto ended, slot.ended(transport_));
    any |= ended;
  }
  return any;
}

// A receive is posted one turn ahead, as soon as its buffer is free: position p uses the buffer of
// p - 2, whose turn has been taken, but whose send may be outstanding.
base::Status Ring::post_receives(RingLane& lane) {
  const std::int64_t last = std::min(lane.position + 1, end_of(lane) - 1);
  for (; lane.receive_position <= last; ++lane.receive_position) {
    const Place at = place(lane, lane.receive_position);
    if (!receives(at.turn.verb) || at.range.length() == 0) continue;
    const auto buffer = static_cast<std::size_t>(lane.receive_position & 1);
    if (lane.sending[buffer].busy()) break;
    RONDE_RETURN_IF_ERROR(lane.receiving[buffer].receive(
        transport_, plan_.previous(), lane.tag(tag_), message(lane, buffer, at.range)));
  }
  return {};
}

// Takes at most one turn that has bytes, so that a step stays short. Turns without bytes cost
// nothing, and both neighbours know that no message is sent for them.
base::Result<bool> Ring::take_turn(RingLane& lane) {
  bool any = false;
  for (; lane.position < end_of(lane); ++lane.position, any = true) {
    const Place at = place(lane, lane.position);
    if (at.range.length() == 0) continue;
    const auto buffer = static_cast<std::size_t>(lane.position & 1);
    if (lane.sending[buffer].busy()) return any;
    if (receives(at.turn.verb)) {
      if (lane.receive_position <= lane.position) return any;
      RONDE_ASSIGN_OR_RETURN(const auto arrived, lane.receiving[buffer].ended(transport_));
      if (!arrived) return any;
    }
    arithmetic_.run(at.turn, at.range, lane.buffers[buffer]);
    if (sends(at.turn.verb)) {
      RONDE_RETURN_IF_ERROR(lane.sending[buffer].send(transport_, plan_.next(), lane.tag(tag_),
                                                      message(lane, buffer, at.range)));
    }
    ++lane.position;
    return true;
  }
  return any;
}

}  // namespace

std::unique_ptr<Collective> ring_allreduce(Transport& transport, Workspace& workspace,
                                           fusion::FusedView view, const Reduction& reduction,
                                           int ranks, base::Bytes segment, int tag) {
  return std::make_unique<Ring>(transport, workspace, RingKind::kAllreduce,
                                OrderedSum(std::move(view), reduction, ranks), segment, tag);
}

std::unique_ptr<Collective> ring_reduce_scatter(Transport& transport, Workspace& workspace,
                                                fusion::FusedView blocks_view,
                                                const Reduction& reduction, int ranks,
                                                base::Bytes segment, int first_tag) {
  return std::make_unique<Ring>(transport, workspace, RingKind::kReduceScatter,
                                OrderedSum(std::move(blocks_view), reduction, ranks), segment,
                                first_tag);
}

std::unique_ptr<Collective> ring_allgather(Transport& transport, Workspace& workspace,
                                           fusion::FusedView view, base::Bytes segment, int tag) {
  return std::make_unique<Ring>(transport, workspace, RingKind::kAllgather,
                                OrderedSum(std::move(view)), segment, tag);
}

}  // namespace ronde::collectives
