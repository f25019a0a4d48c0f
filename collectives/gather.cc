// SPDX-License-Identifier: Apache-2.0
#include "collectives/gather.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "collectives/request_slot.h"
#include "collectives/ring.h"
#include "collectives/ring_arithmetic.h"
#include "collectives/segment_lanes.h"

namespace ronde::collectives {
namespace {

using fusion::ByteRange;

// One message out and one in: to the rank that many places before this one in the ring, and from
// the one that many places after. What is sent lies at the beginning of the buffer: the
// contributions of this rank and the next ones, as far as they have come.
struct Step {
  int distance = 0;
  int contributions = 0;
  RequestSlot sending{};
  RequestSlot receiving{};
  bool begun = false;  // its message has set out
};

// A lane carries its windows one after another. Its buffer has room for the contribution of each
// rank, in the order of the ring from this one on, and for the sum of one chunk.
struct Lane : SegmentLane<1> {
  std::int64_t round = 0;  // the window it is at
  bool begun = false;
  bool summed = false;  // all have arrived, and the result is where it should be
  std::vector<Step> steps{};
};

// Few ranks send to each other at once: it is one step. Of more, each passes on what it has got, as
// Bruck's allgather does: as many bytes in fewer messages, which double.
constexpr int kMostAtOnce = 3;

std::vector<Step> steps_for(int ranks) {
  std::vector<Step> steps;
  for (int distance = 1; distance < ranks; distance += ranks <= kMostAtOnce ? 1 : distance) {
    const int contributions = ranks <= kMostAtOnce ? 1 : std::min(distance, ranks - distance);
    steps.push_back({distance, contributions});
  }
  return steps;
}

class Gather final : public Collective {
 public:
  Gather(Transport& transport, Workspace& workspace, RingArithmetic arithmetic, base::Bytes window,
         int tag);

  base::Result<StepResult> step() override;

 private:
  [[nodiscard]] int ranks() const { return transport_.size(); }
  // The part of a chunk that lies in the window of the lane.
  [[nodiscard]] ByteRange range(const Lane& lane, int chunk) const {
    return segment_of(arithmetic_.view().chunk_bytes(chunk), segment_, lane.of.segment(lane.round));
  }
  [[nodiscard]] std::int64_t on_wire(const ByteRange& range) const {
    return arithmetic_.on_wire(base::Bytes(range.length())).value();
  }
  [[nodiscard]] std::int64_t message_room() const {
    return ranks() * arithmetic_.on_wire(segment_).value();
  }
  // What a rank contributes to the window.
  [[nodiscard]] std::int64_t contribution_bytes(const Lane& lane) const;
  // The contribution of the rank so many places after this one.
  [[nodiscard]] static std::byte* place(const Lane& lane, int distance, std::int64_t bytes) {
    return lane.buffers[0] + distance * bytes;
  }
  [[nodiscard]] static bool is_done(const Lane& lane) { return lane.round == lane.of.segments; }

  // Each returns whether something happened.
  base::Result<bool> advance(Lane& lane);
  base::Status begin(Lane& lane);
  base::Status send(Lane& lane);
  base::Result<bool> look_at_requests(Lane& lane);
  void sum(const Lane& lane) const;

  Transport& transport_;
  RingArithmetic arithmetic_;
  base::Bytes segment_;  // of the view: what a window has of each chunk
  std::int64_t windows_;
  int tag_;
  SegmentLanes<Lane> lanes_;
};

Gather::Gather(Transport& transport, Workspace& workspace, RingArithmetic arithmetic,
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
  return lanes_.step([this](Lane& lane) { return advance(lane); },
                     [](const Lane& lane) { return is_done(lane); });
}

std::int64_t Gather::contribution_bytes(const Lane& lane) const {
  std::int64_t bytes = 0;
  for (int chunk = 0; chunk < ranks(); ++chunk) bytes += on_wire(range(lane, chunk));
  return bytes;
}

base::Result<bool> Gather::advance(Lane& lane) {
  if (is_done(lane)) return false;
  const bool begins = !lane.begun;
  if (begins) RONDE_RETURN_IF_ERROR(begin(lane));
  const base::Result<bool> ended = look_at_requests(lane);
  RONDE_RETURN_IF_ERROR(ended.status());
  if (*ended) RONDE_RETURN_IF_ERROR(send(lane));
  bool sending = false;
  bool receiving = false;
  for (const Step& step : lane.steps) {
    sending |= step.sending.busy() || !step.begun;
    receiving |= step.receiving.busy();
  }
  const bool sums = !receiving && !lane.summed;
  if (sums) {
    sum(lane);
    lane.summed = true;
  }
  const bool over = lane.summed && !sending;
  if (over) {
    ++lane.round;
    lane.begun = false;
    lane.summed = false;
  }
  return begins || *ended || sums || over;
}

base::Status Gather::begin(Lane& lane) {
  const int me = transport_.rank();
  const std::int64_t bytes = contribution_bytes(lane);
  lane.steps = steps_for(ranks());
  lane.begun = true;
  for (Step& step : lane.steps) {
    RONDE_RETURN_IF_ERROR(
        step.receiving.receive(transport_, (me + step.distance) % ranks(), lane.tag(tag_),
                               {place(lane, step.distance, bytes),
                                base::narrow<std::size_t>(step.contributions * bytes)}));
  }
  std::byte* next = place(lane, 0, bytes);
  for (int chunk = 0; chunk < ranks(); ++chunk) {
    arithmetic_.copy_in(chunk, range(lane, chunk), next);
    next += on_wire(range(lane, chunk));
  }
  return send(lane);
}

// Sends what this rank has all of.
base::Status Gather::send(Lane& lane) {
  const std::int64_t bytes = contribution_bytes(lane);
  int arrived = 1;  // contributions, without a gap
  for (Step& step : lane.steps) {
    if (!step.begun && step.contributions <= arrived) {
      step.begun = true;
      RONDE_RETURN_IF_ERROR(step.sending.send(
          transport_, (transport_.rank() + ranks() - step.distance) % ranks(), lane.tag(tag_),
          {place(lane, 0, bytes), base::narrow<std::size_t>(step.contributions * bytes)}));
    }
    if (arrived == step.distance && !step.receiving.busy()) arrived += step.contributions;
  }
  return {};
}

base::Result<bool> Gather::look_at_requests(Lane& lane) {
  bool any = false;
  for (Step& step : lane.steps) {
    for (RequestSlot* const slot : {&step.receiving, &step.sending}) {
      const base::Result<bool> ended = slot->ended(transport_);
      RONDE_RETURN_IF_ERROR(ended.status());
      any |= *ended;
    }
  }
  return any;
}

// In memory of its own, since messages may still be leaving from where they lie.
void Gather::sum(const Lane& lane) const {
  const std::int64_t bytes = contribution_bytes(lane);
  std::byte* const whole = place(lane, ranks(), bytes);
  std::int64_t before = 0;
  for (int chunk = 0; chunk < ranks(); ++chunk) {
    const ByteRange part = range(lane, chunk);
    const auto contribution = [&](int hop) {
      const int rank = (chunk + 1 + hop) % ranks();
      return place(lane, (rank + ranks() - transport_.rank()) % ranks(), bytes) + before;
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
  const int messages = base::narrow<int>(steps_for(ranks).size());
  return {ranks <= kMostAtOnce ? std::min(messages, 1) : messages, messages};
}

std::unique_ptr<Collective> gather_allreduce(Transport& transport, Workspace& workspace,
                                             fusion::FusedView view, const Reduction& reduction,
                                             int ranks, int tag, base::Bytes window) {
  if (transport.size() == 1) {  // nobody to talk to
    return ring_allreduce(transport, workspace, std::move(view), reduction, ranks, window, tag);
  }
  return std::make_unique<Gather>(transport, workspace,
                                  RingArithmetic(std::move(view), reduction, ranks), window, tag);
}

}  // namespace ronde::collectives
