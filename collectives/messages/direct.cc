// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/direct.h"

#include <algorithm>
#include <cstddef>
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

// The messages between this rank and the one at some distance after it, in two buffers: `mine`
// holds this rank's contribution to the peer's chunk, and then the result of that chunk; `theirs`
// holds the peer's contribution to this rank's chunk.
struct Pair {
  std::byte* mine = nullptr;
  std::byte* theirs = nullptr;
  RequestSlot sending_contribution;    // to the peer's chunk
  RequestSlot receiving_contribution;  // to this rank's chunk
  RequestSlot sending_result;          // of this rank's chunk
  RequestSlot receiving_result;        // of the peer's chunk
  bool awaits_result = false;          // the receive is not posted, or the result not copied out
};

// A lane carries its segments one after another. With the tag of the lane, the messages between two
// ranks in one direction are: contribution, result, contribution of the next segment, ... Receives
// are posted in this order, and so each gets the message that it is for.
struct DirectLane : SegmentLane<1> {
  std::int64_t round = 0;              // the segment that the lane carries
  bool begun = false;                  // the receives of the segment are posted
  std::size_t contributions_sent = 0;  // to the nearest peer before this rank first
  std::size_t summed = 0;              // contributions in the sum, of the nearest peer after first
  bool results_sent = false;           // the sum is whole, and is being sent
  std::vector<Pair> pairs{};           // by distance - 1
};

class Direct final : public Collective {
 public:
  // `sum_verb` is the last turn of this rank's chunk: it goes to the outputs, and to others or not.
  Direct(Transport& transport, Workspace& workspace, RingVerb sum_verb, OrderedSum arithmetic,
         base::Bytes segment, int tag);

  base::Result<StepResult> step() override;

 private:
  [[nodiscard]] std::size_t peers() const {
    return base::narrow<std::size_t>(transport_.size() - 1);
  }
  [[nodiscard]] int peer(std::size_t index) const {
    return (transport_.rank() + 1 + base::narrow<int>(index)) % transport_.size();
  }
  [[nodiscard]] ByteRange range(const DirectLane& lane, int chunk) const {
    return segment_of(arithmetic_.view().chunk_bytes(chunk), segment_, lane.of.segment(lane.round));
  }
  [[nodiscard]] std::size_t on_wire(const ByteRange& range) const {
    return arithmetic_.on_wire(base::Bytes(range.length())).size();
  }
  [[nodiscard]] static bool is_done(const DirectLane& lane) {
    return lane.round == lane.of.segments;
  }
  // The last message that this rank sends to a peer.
  [[nodiscard]] RequestSlot& last_of(Pair& pair) const {
    return sends(sum_verb_) ? pair.sending_result : pair.sending_contribution;
  }

  void give_buffers(DirectLane& lane) const;

  // Each returns whether something happened, and does the work of one peer at most.
  base::Result<bool> advance(DirectLane& lane);
  base::Status begin(DirectLane& lane);
  base::Result<bool> send_contribution(DirectLane& lane);
  base::Result<bool> sum(DirectLane& lane);
  base::Status send_results(DirectLane& lane, const ByteRange& own);
  base::Result<bool> take_results(DirectLane& lane);
  base::Result<bool> end(DirectLane& lane);

  Transport& transport_;
  RingVerb sum_verb_;
  OrderedSum arithmetic_;
  base::Bytes segment_;  // of the view
  std::int64_t segments_;
  int tag_;
  SegmentLanes<DirectLane> lanes_;
};

Direct::Direct(Transport& transport, Workspace& workspace, RingVerb sum_verb, OrderedSum arithmetic,
               base::Bytes segment, int tag)
    : transport_(transport),
      sum_verb_(sum_verb),
      arithmetic_(std::move(arithmetic)),
      tag_(tag),
      lanes_(workspace) {
  base::check_eq(arithmetic_.view().chunks(), transport.size(), "direct: one chunk per rank");
  const base::Bytes largest = arithmetic_.view().largest_chunk();
  const base::Bytes share(segment.value() / (transport.size() - 1));
  segment_ = segment_length(arithmetic_.in_view(std::min(share, largest)), largest);
  segments_ = base::ceil_div(largest.value(), segment_.value());
}

base::Result<StepResult> Direct::step() {
  if (!lanes_.is_open()) {
    const std::int64_t buffers = 2 * (transport_.size() - 1);
    RONDE_RETURN_IF_ERROR(lanes_.open(
        transport_, segments_, base::Bytes(buffers * arithmetic_.on_wire(segment_).value())));
  }
  return lanes_.step([this](DirectLane& lane) { return advance(lane); },
                     [](const DirectLane& lane) { return is_done(lane); });
}

base::Result<bool> Direct::advance(DirectLane& lane) {
  if (is_done(lane)) return false;
  if (!lane.begun) RONDE_RETURN_IF_ERROR(begin(lane));
  RONDE_ASSIGN_OR_RETURN(const auto contributions_sent, send_contribution(lane));
  RONDE_ASSIGN_OR_RETURN(const auto summed, sum(lane));
  RONDE_ASSIGN_OR_RETURN(const auto taken, take_results(lane));
  RONDE_ASSIGN_OR_RETURN(const auto ended, end(lane));
  return contributions_sent || summed || taken || ended;
}

void Direct::give_buffers(DirectLane& lane) const {
  std::byte* next = lane.buffers[0];
  const std::int64_t bytes = arithmetic_.on_wire(segment_).value();
  lane.pairs.resize(peers());
  for (Pair& pair : lane.pairs) {
    pair.mine = next;
    pair.theirs = next + bytes;
    next += 2 * bytes;
  }
}

base::Status Direct::begin(DirectLane& lane) {
  if (lane.pairs.empty()) give_buffers(lane);
  const ByteRange own = range(lane, transport_.rank());
  for (std::size_t index = 0; index < peers() && own.length() > 0; ++index) {
    Pair& pair = lane.pairs[index];
    RONDE_RETURN_IF_ERROR(pair.receiving_contribution.receive(
        transport_, peer(index), lane.tag(tag_), {pair.theirs, on_wire(own)}));
  }
  lane.begun = true;
  return {};
}

base::Result<bool> Direct::send_contribution(DirectLane& lane) {
  if (lane.contributions_sent == peers()) return false;
  const std::size_t index = peers() - 1 - lane.contributions_sent;
  Pair& pair = lane.pairs[index];
  const ByteRange theirs = range(lane, peer(index));
  if (theirs.length() > 0) {
    arithmetic_.copy_in(peer(index), theirs, pair.mine);
    RONDE_RETURN_IF_ERROR(pair.sending_contribution.send(transport_, peer(index), lane.tag(tag_),
                                                         {pair.mine, on_wire(theirs)}));
    pair.awaits_result = sends(sum_verb_);
  }
  ++lane.contributions_sent;
  return true;
}

// The sum grows in the buffer of the first contribution. Results are sent after all contributions,
// which is the order in which the peers receive them.
base::Result<bool> Direct::sum(DirectLane& lane) {
  if (lane.results_sent || lane.contributions_sent < peers()) return false;
  const ByteRange own = range(lane, transport_.rank());
  if (own.length() == 0) {
    lane.results_sent = true;
    return true;
  }
  Pair& pair = lane.pairs[lane.summed];
  RONDE_ASSIGN_OR_RETURN(const auto arrived, pair.receiving_contribution.ended(transport_));
  if (!arrived) return false;
  std::byte* const whole = lane.pairs[0].theirs;
  if (lane.summed == 0) {
    arithmetic_.begin_sum(own, whole);
  } else {
    arithmetic_.add(own, whole, pair.theirs);
  }
  if (++lane.summed == peers()) RONDE_RETURN_IF_ERROR(send_results(lane, own));
  return true;
}

base::Status Direct::send_results(DirectLane& lane, const ByteRange& own) {
  std::byte* const whole = lane.pairs[0].theirs;
  arithmetic_.run({sum_verb_, transport_.rank()}, own, whole);
  for (std::size_t left = peers(); left > 0 && sends(sum_verb_); --left) {
    RONDE_RETURN_IF_ERROR(lane.pairs[left - 1].sending_result.send(
        transport_, peer(left - 1), lane.tag(tag_), {whole, on_wire(own)}));
  }
  lane.results_sent = true;
  return {};
}

// The receive of a result is posted when the contribution has been sent, since both use one buffer.
base::Result<bool> Direct::take_results(DirectLane& lane) {
  bool any = false;
  for (std::size_t index = 0; index < lane.pairs.size(); ++index) {
    Pair& pair = lane.pairs[index];
    if (!pair.awaits_result) continue;
    const ByteRange theirs = range(lane, peer(index));
    if (pair.sending_contribution.busy()) {
      RONDE_ASSIGN_OR_RETURN(const auto left, pair.sending_contribution.ended(transport_));
      if (!left) continue;
      RONDE_RETURN_IF_ERROR(pair.receiving_result.receive(transport_, peer(index), lane.tag(tag_),
                                                          {pair.mine, on_wire(theirs)}));
      any = true;
    }
    RONDE_ASSIGN_OR_RETURN(const auto arrived, pair.receiving_result.ended(transport_));
    if (!arrived) continue;
    arithmetic_.copy_out(peer(index), theirs, pair.mine);
    pair.awaits_result = false;
    return true;
  }
  return any;
}

base::Result<bool> Direct::end(DirectLane& lane) {
  bool any = false;
  bool over = lane.results_sent;
  for (Pair& pair : lane.pairs) {
    RONDE_ASSIGN_OR_RETURN(const auto left, last_of(pair).ended(transport_));
    any |= left;
    over &= !last_of(pair).busy() && !pair.awaits_result;
  }
  if (!over) return any;
  ++lane.round;
  lane.begun = false;
  lane.contributions_sent = 0;
  lane.summed = 0;
  lane.results_sent = false;
  return true;
}

}  // namespace

std::unique_ptr<Collective> direct_allreduce(Transport& transport, Workspace& workspace,
                                             fusion::FusedView view, const Reduction& reduction,
                                             int ranks, base::Bytes segment, int tag) {
  if (transport.size() == 1) {  // there are no messages
    return ring_allreduce(transport, workspace, std::move(view), reduction, ranks, segment, tag);
  }
  return std::make_unique<Direct>(transport, workspace, RingVerb::kReceiveReduceCopySend,
                                  OrderedSum(std::move(view), reduction, ranks), segment, tag);
}

std::unique_ptr<Collective> direct_reduce_scatter(Transport& transport, Workspace& workspace,
                                                  fusion::FusedView blocks_view,
                                                  const Reduction& reduction, int ranks,
                                                  base::Bytes segment, int tag) {
  if (transport.size() == 1) {
    return ring_reduce_scatter(transport, workspace, std::move(blocks_view), reduction, ranks,
                               segment, tag);
  }
  return std::make_unique<Direct>(transport, workspace, RingVerb::kReceiveReduceCopy,
                                  OrderedSum(std::move(blocks_view), reduction, ranks), segment,
                                  tag);
}

}  // namespace ronde::collectives
