// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/gather.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "collectives/messages/ordered_sum.h"
#include "collectives/messages/ring.h"
#include "collectives/messages/segment_lanes.h"
#include "collectives/transport/request_slot.h"

namespace ronde::collectives {
namespace {

using fusion::ByteRange;

// A step sends one message and receives one, each of so many contributions. Contributions lie in
// the buffer by place_of(); those that a step sends have arrived in the steps before.
struct Step {
  int to = 0;
  int from = 0;
  int contributions = 0;
  int sent = 0;      // the place of the first contribution that is sent
  int received = 0;  // and of the first that is received
  RequestSlot sending{};
  RequestSlot receiving{};
  bool begun = false;  // its message is being sent
};

// A lane carries its windows one after another. Its buffer has room for the contribution of each
// rank, by place, and for the sum of one chunk.
struct GatherLane : SegmentLane<1> {
  std::int64_t round = 0;  // the window that it carries
  bool begun = false;
  bool summed = false;  // all contributions have arrived, and the outputs have the result
  std::vector<Step> steps{};
  std::vector<ByteRange> parts{};  // the window's part of each chunk
  std::int64_t bytes = 0;          // a contribution to the window takes these on the wire
};

// Up to this many ranks all send to each other in one step. With more, each rank passes on what it
// has received: as many bytes in fewer messages, which double in length. When their number is a
// power of two, ranks exchange in pairs, so that each message carries the acknowledgement of the
// one before; otherwise the messages go around the ring, as in Bruck's allgather.
constexpr int kMostAtOnce = 3;

bool in_pairs(int ranks) {
  return ranks > kMostAtOnce && std::has_single_bit(static_cast<unsigned>(ranks));
}

// The place of a rank's contribution: by rank where ranks exchange in pairs, and otherwise from
// this rank's on around the ring.
int place_of(int rank, int me, int ranks) {
  return in_pairs(ranks) ? rank : (rank + ranks - me) % ranks;
}

std::vector<Step> steps_for(int me, int ranks) {
  std::vector<Step> steps;
  for (int distance = 1; distance < ranks; distance += ranks <= kMostAtOnce ? 1 : distance) {
    if (in_pairs(ranks)) {
      const int peer = me ^ distance;
      steps.push_back({peer, peer, distance, me & -distance, peer & -distance});
    } else {
      const int contributions = ranks <= kMostAtOnce ? 1 : std::min(distance, ranks - distance);
      steps.push_back(
          {(me + ranks - distance) % ranks, (me + distance) % ranks, contributions, 0, distance});
    }
  }
  return steps;
}

class Gather final : public Collective {
 public:
  Gather(Transport& transport, Workspace& workspace, OrderedSum arithmetic, base::Bytes window,
         int tag);

  base::Result<StepResult> step() override;

 private:
  [[nodiscard]] int ranks() const { return transport_.size(); }
  // The part of a chunk that lies in the window of the lane.
  [[nodiscard]] ByteRange range(const GatherLane& lane, int chunk) const {
    return segment_of(arithmetic_.view().chunk_bytes(chunk), segment_, lane.of.segment(lane.round));
  }
  [[nodiscard]] std::int64_t on_wire(const ByteRange& range) const {
    return arithmetic_.on_wire(base::Bytes(range.length())).value();
  }
  [[nodiscard]] std::int64_t message_room() const {
    return ranks() * arithmetic_.on_wire(segment_).value();
  }
  [[nodiscard]] static std::byte* place(const GatherLane& lane, int index) {
    return lane.buffers[0] + index * lane.bytes;
  }
  [[nodiscard]] static std::size_t size_of(const GatherLane& lane, const Step& step) {
    return base::narrow<std::size_t>(step.contributions * lane.bytes);
  }
  [[nodiscard]] static bool is_done(const GatherLane& lane) {
    return lane.round == lane.of.segments;
  }

  // Returns whether something happened.
  base::Result<bool> advance(GatherLane& lane);
  base::Status begin(GatherLane& lane);
  base::Status send(GatherLane& lane, Step& step);
  void sum(const GatherLane& lane) const;

  Transport& transport_;
  OrderedSum arithmetic_;
  base::Bytes segment_;  // a window has at most this much of each chunk, in bytes of the view
  std::int64_t windows_;
  int tag_;
  SegmentLanes<GatherLane> lanes_;
};

Gather::Gather(Transport& transport, Workspace& workspace, OrderedSum arithmetic,
               base::Bytes window, int tag)
    : transport_(transport), arithmetic_(std::move(arithmetic)), tag_(tag), lanes_(workspace) {
  base::check_eq(arithmetic_.view().chunks(), ranks(), "gather: one chunk per rank");
  const base::Bytes largest = arithmetic_.view().largest_chunk();
  const base::Bytes share(window.value() / ranks());
  segment_ = segment_length(arithmetic_.in_view(std::min(share, largest)), largest);
  windows_ = base::ceil_div(largest.value(), segment_.value());
}

base::Result<StepResult> Gather::step() {
  if (!lanes_.is_open()) {
    const std::int64_t room = ranks() * message_room() + arithmetic_.on_wire(segment_).value();
    RONDE_RETURN_IF_ERROR(lanes_.open(transport_, windows_, base::Bytes(room)));
  }
  return lanes_.step([this](GatherLane& lane) { return advance(lane); },
                     [](const GatherLane& lane) { return is_done(lane); });
}

base::Result<bool> Gather::advance(GatherLane& lane) {
  if (is_done(lane)) return false;
  bool any = !lane.begun;
  if (!lane.begun) RONDE_RETURN_IF_ERROR(begin(lane));
  bool waiting = false;  // a later step passes on what an earlier one still receives
  bool leaving = false;
  for (Step& step : lane.steps) {
    if (!step.begun && !waiting) {
      RONDE_RETURN_IF_ERROR(send(lane, step));
      any = true;
    }
    for (RequestSlot* const slot : {&step.receiving, &step.sending}) {
      RONDE_ASSIGN_OR_RETURN(const auto ended, slot->ended(transport_));
      any |= ended;
    }
    waiting |= step.receiving.busy();
    leaving |= step.sending.busy();
  }
  if (waiting) return any;
  if (!lane.summed) {
    sum(lane);
    lane.summed = true;
    any = true;
  }
  if (leaving) return any;
  ++lane.round;
  lane.begun = false;
  lane.summed = false;
  return true;
}

base::Status Gather::begin(GatherLane& lane) {
  lane.begun = true;
  lane.steps = steps_for(transport_.rank(), ranks());
  lane.parts.clear();
  lane.bytes = 0;
  for (int chunk = 0; chunk < ranks(); ++chunk) {
    lane.parts.push_back(range(lane, chunk));
    lane.bytes += on_wire(lane.parts.back());
  }
  std::byte* next = place(lane, place_of(transport_.rank(), transport_.rank(), ranks()));
  for (int chunk = 0; chunk < ranks(); ++chunk) {
    const ByteRange& part = lane.parts[base::narrow<std::size_t>(chunk)];
    arithmetic_.copy_in(chunk, part, next);
    next += on_wire(part);
  }
  // Messages are sent before receives are posted, since other ranks wait for them.
  for (Step& step : lane.steps) {
    RONDE_RETURN_IF_ERROR(send(lane, step));
    if (ranks() > kMostAtOnce) break;
  }
  for (Step& step : lane.steps) {
    RONDE_RETURN_IF_ERROR(step.receiving.receive(
        transport_, step.from, lane.tag(tag_), {place(lane, step.received), size_of(lane, step)}));
  }
  return {};
}

base::Status Gather::send(GatherLane& lane, Step& step) {
  step.begun = true;
  return step.sending.send(transport_, step.to, lane.tag(tag_),
                           {place(lane, step.sent), size_of(lane, step)});
}

// The sum has memory of its own, since contributions may still be being sent from theirs.
void Gather::sum(const GatherLane& lane) const {
  const int me = transport_.rank();
  std::byte* const whole = place(lane, ranks());
  std::int64_t before = 0;
  for (int chunk = 0; chunk < ranks(); ++chunk) {
    const ByteRange& part = lane.parts[base::narrow<std::size_t>(chunk)];
    if (part.length() == 0) continue;
    const auto contribution = [&](int hop) {
      return place(lane, place_of((chunk + 1 + hop) % ranks(), me, ranks())) + before;
    };
    std::memcpy(whole, contribution(0), base::narrow<std::size_t>(on_wire(part)));
    arithmetic_.begin_sum(part, whole);
    for (int hop = 1; hop + 1 < ranks(); ++hop) arithmetic_.add(part, whole, contribution(hop));
    arithmetic_.add_last(part, whole, contribution(ranks() - 1));
    arithmetic_.copy_out(chunk, part, whole);
    before += on_wire(part);
  }
}

}  // namespace

GatherShape gather_shape(int ranks) {
  if (ranks <= kMostAtOnce) return {std::min(ranks - 1, 1), ranks - 1};
  const auto steps = base::narrow<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  return {steps, steps};
}

std::unique_ptr<Collective> gather_allreduce(Transport& transport, Workspace& workspace,
                                             fusion::FusedView view, const Reduction& reduction,
                                             int ranks, int tag, base::Bytes window) {
  if (transport.size() == 1) {  // there are no messages, and no steps
    return ring_allreduce(transport, workspace, std::move(view), reduction, ranks, window, tag);
  }
  return std::make_unique<Gather>(transport, workspace,
                                  OrderedSum(std::move(view), reduction, ranks), window, tag);
}

}  // namespace ronde::collectives
