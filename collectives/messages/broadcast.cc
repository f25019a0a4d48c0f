// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/broadcast.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "collectives/messages/segment_lanes.h"
#include "collectives/transport/request_slot.h"

namespace ronde::collectives {
namespace {

// A lane takes its segments one after another through the phases.
struct BroadcastLane : SegmentLane<1> {
  enum class Phase { kFill, kReceiving, kDrain, kDone };

  std::int64_t round = 0;  // the number of segments that are finished
  Phase phase = Phase::kFill;
  RequestSlot receiving;
  std::vector<RequestSlot> sending;  // one per child
};

class Broadcast final : public Collective {
 public:
  Broadcast(Transport& transport, Workspace& workspace, fusion::FusedView view, int root,
            base::Bytes segment, int tag);

  base::Result<StepResult> step() override;

 private:
  // Takes a lane through its phases, at most once. Returns whether something happened.
  base::Result<bool> advance(BroadcastLane& lane);
  base::Status fill(BroadcastLane& lane);
  base::Result<bool> finish_receiving(BroadcastLane& lane);
  base::Status forward(BroadcastLane& lane);
  base::Result<bool> drain(BroadcastLane& lane);

  [[nodiscard]] fusion::ByteRange range(const BroadcastLane& lane) const {
    return segment_of(view_.bytes(), segment_, lane.of.segment(lane.round));
  }
  [[nodiscard]] std::span<std::byte> bytes(const BroadcastLane& lane) const {
    return {lane.buffers[0], static_cast<std::size_t>(range(lane).length())};
  }

  Transport& transport_;
  fusion::FusedView view_;
  base::Bytes segment_;
  std::int64_t segments_;
  BroadcastTree tree_;
  int tag_;
  SegmentLanes<BroadcastLane> lanes_;
};

Broadcast::Broadcast(Transport& transport, Workspace& workspace, fusion::FusedView view, int root,
                     base::Bytes segment, int tag)
    : transport_(transport),
      view_(std::move(view)),
      segment_(segment_length(segment, view_.bytes())),
      segments_(base::ceil_div(view_.bytes().value(), segment_.value())),
      tree_(broadcast_tree(transport.rank(), transport.size(), root, segments_)),
      tag_(tag),
      lanes_(workspace) {
  base::check_eq(view_.chunks(), 1, "broadcast: the view has one chunk");
}

base::Result<StepResult> Broadcast::step() {
  if (!lanes_.is_open()) {
    RONDE_RETURN_IF_ERROR(lanes_.open(transport_, segments_, segment_));
  }
  return lanes_.step(
      [this](BroadcastLane& lane) { return advance(lane); },
      [](const BroadcastLane& lane) { return lane.phase == BroadcastLane::Phase::kDone; });
}

base::Result<bool> Broadcast::advance(BroadcastLane& lane) {
  bool any = false;
  if (lane.phase == BroadcastLane::Phase::kFill) {
    RONDE_RETURN_IF_ERROR(fill(lane));
    any = true;
  }
  if (lane.phase == BroadcastLane::Phase::kReceiving) {
    RONDE_ASSIGN_OR_RETURN(const auto arrived, finish_receiving(lane));
    any |= arrived;
  }
  if (lane.phase == BroadcastLane::Phase::kDrain) {
    RONDE_ASSIGN_OR_RETURN(const auto ended, drain(lane));
    any |= ended;
  }
  return any;
}

base::Status Broadcast::fill(BroadcastLane& lane) {
  lane.sending.resize(tree_.children.size());
  if (tree_.parent) {
    lane.phase = BroadcastLane::Phase::kReceiving;
    return lane.receiving.receive(transport_, *tree_.parent, lane.tag(tag_), bytes(lane));
  }
  view_.copy_in(0, range(lane).begin, bytes(lane));
  view_.copy_across(0, range(lane).begin, range(lane).length());
  return forward(lane);
}

base::Result<bool> Broadcast::finish_receiving(BroadcastLane& lane) {
  RONDE_ASSIGN_OR_RETURN(const auto arrived, lane.receiving.ended(transport_));
  if (!arrived) return false;
  // The segment is forwarded before it is copied out, since other ranks wait for it.
  RONDE_RETURN_IF_ERROR(forward(lane));
  view_.copy_out(0, range(lane).begin, bytes(lane));
  return true;
}

base::Status Broadcast::forward(BroadcastLane& lane) {
  for (std::size_t child = 0; child < tree_.children.size(); ++child) {
    RONDE_RETURN_IF_ERROR(
        lane.sending[child].send(transport_, tree_.children[child], lane.tag(tag_), bytes(lane)));
  }
  lane.phase = BroadcastLane::Phase::kDrain;
  return {};
}

base::Result<bool> Broadcast::drain(BroadcastLane& lane) {
  bool any = false;
  bool busy = false;
  for (RequestSlot& slot : lane.sending) {
    RONDE_ASSIGN_OR_RETURN(const auto ended, slot.ended(transport_));
    any |= ended;
    busy |= slot.busy();
  }
  if (busy) return any;
  ++lane.round;
  lane.phase =
      lane.round < lane.of.segments ? BroadcastLane::Phase::kFill : BroadcastLane::Phase::kDone;
  return true;
}

}  // namespace

BroadcastTree broadcast_tree(int rank, int size, int root, std::int64_t segments) {
  base::check(rank >= 0 && rank < size && root >= 0 && root < size, "broadcast: no such rank");
  // Places count from the root, so that the tree is the same for every root.
  const int place = (rank - root + size) % size;
  const auto rank_at = [&](int where) { return (where + root) % size; };
  BroadcastTree tree;

  const std::int64_t depth = std::bit_width(static_cast<unsigned>(size - 1));
  const bool chain = segments + size - 2 <= segments * depth;
  if (chain) {
    if (place > 0) tree.parent = rank_at(place - 1);
    if (place + 1 < size) tree.children.push_back(rank_at(place + 1));
    return tree;
  }
  // The parent of place v is v without its lowest bit, and v has a child for each bit below that
  // one. It sends first to the child with the largest tree below it.
  if (place > 0) tree.parent = rank_at(place & (place - 1));
  const int limit = place == 0 ? 1 << depth : place & -place;
  for (int bit = limit / 2; bit > 0; bit /= 2) {
    if (place + bit < size) tree.children.push_back(rank_at(place + bit));
  }
  return tree;
}

std::unique_ptr<Collective> broadcast(Transport& transport, Workspace& workspace,
                                      fusion::FusedView view, int root, base::Bytes segment,
                                      int tag) {
  return std::make_unique<Broadcast>(transport, workspace, std::move(view), root, segment, tag);
}

}  // namespace ronde::collectives
