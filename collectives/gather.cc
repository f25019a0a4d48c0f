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

struct Peer {
  RequestSlot sending;
  RequestSlot receiving;
};

// A lane carries its windows one after another. Its buffer has room for the message of each rank,
// its own too, and for the sum of one chunk.
struct Lane : SegmentLane<1> {
  std::int64_t round = 0;     // the window it is at
  bool begun = false;         // this rank's message has set out
  bool summed = false;        // all have arrived, and the result is where it should be
  std::vector<Peer> peers{};  // by rank; this rank's is not used
};

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
  [[nodiscard]] std::byte* message_of(const Lane& lane, int rank) const {
    return lane.buffers[0] + rank * message_room();
  }
  [[nodiscard]] std::size_t message_bytes(const Lane& lane) const;
  [[nodiscard]] static bool is_done(const Lane& lane) { return lane.round == lane.of.segments; }

  // Each returns whether something happened.
  base::Result<bool> advance(Lane& lane);
  base::Status begin(Lane& lane);
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

std::size_t Gather::message_bytes(const Lane& lane) const {
  std::int64_t bytes = 0;
  for (int chunk = 0; chunk < ranks(); ++chunk) bytes += on_wire(range(lane, chunk));
  return base::narrow<std::size_t>(bytes);
}

base::Result<bool> Gather::advance(Lane& lane) {
  if (is_done(lane)) return false;
  const bool begins = !lane.begun;
  if (begins) RONDE_RETURN_IF_ERROR(begin(lane));
  const base::Result<bool> ended = look_at_requests(lane);
  RONDE_RETURN_IF_ERROR(ended.status());
  bool sending = false;
  bool receiving = false;
  for (const Peer& peer : lane.peers) {
    sending |= peer.sending.busy();
    receiving |= peer.receiving.busy();
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

// Each rank begins with its next neighbour, so that not all of them send to the same one at once.
base::Status Gather::begin(Lane& lane) {
  const int me = transport_.rank();
  lane.peers.resize(base::narrow<std::size_t>(ranks()));
  lane.begun = true;
  const std::size_t bytes = message_bytes(lane);
  for (int distance = 1; distance < ranks(); ++distance) {
    const int from = (me + ranks() - distance) % ranks();
    RONDE_RETURN_IF_ERROR(lane.peers[base::narrow<std::size_t>(from)].receiving.receive(
        transport_, from, lane.tag(tag_), {message_of(lane, from), bytes}));
  }
  std::byte* next = message_of(lane, me);
  for (int chunk = 0; chunk < ranks(); ++chunk) {
    arithmetic_.copy_in(chunk, range(lane, chunk), next);
    next += on_wire(range(lane, chunk));
  }
  for (int distance = 1; distance < ranks(); ++distance) {
    const int to = (me + distance) % ranks();
    RONDE_RETURN_IF_ERROR(lane.peers[base::narrow<std::size_t>(to)].sending.send(
        transport_, to, lane.tag(tag_), {message_of(lane, me), bytes}));
  }
  return {};
}

base::Result<bool> Gather::look_at_requests(Lane& lane) {
  bool any = false;
  for (Peer& peer : lane.peers) {
    for (RequestSlot* const slot : {&peer.receiving, &peer.sending}) {
      const base::Result<bool> ended = slot->ended(transport_);
      RONDE_RETURN_IF_ERROR(ended.status());
      any |= *ended;
    }
  }
  return any;
}

// In memory of its own, since messages may still be leaving from where they lie.
void Gather::sum(const Lane& lane) const {
  std::byte* const whole = message_of(lane, ranks());
  std::int64_t before = 0;
  for (int chunk = 0; chunk < ranks(); ++chunk) {
    const ByteRange part = range(lane, chunk);
    const auto contribution = [&](int hop) {
      return message_of(lane, (chunk + 1 + hop) % ranks()) + before;
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
