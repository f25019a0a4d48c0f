// SPDX-License-Identifier: Apache-2.0
#include "collectives/broadcast.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "collectives/request_slot.h"
#include "collectives/ring_plan.h"

namespace ronde::collectives {
namespace {

using fusion::ByteRange;

// Segments in flight at once, each in a buffer and with a tag of its own.
constexpr std::int64_t kLanes = 4;
static_assert(kLanes <= kTagsPerCollective);

// Takes segments k, k + lanes, k + 2 lanes, ... one after another through: fill, forward, drain.
struct Lane {
  enum class Phase { kFill, kReceiving, kDrain, kDone };

  std::int64_t index = 0;
  std::int64_t segment = 0;  // the one that the lane is busy with
  Phase phase = Phase::kFill;
  std::byte* buffer = nullptr;
  RequestSlot receiving;
  std::vector<RequestSlot> sending;  // one per child
};

class Broadcast final : public Collective {
 public:
  Broadcast(Transport& transport, Workspace& workspace, fusion::FusedView view, int root,
            base::Bytes segment, int tag);

  base::Result<StepResult> step() override;

 private:
  [[nodiscard]] base::Status start();
  // Takes a lane at most once through its phases. Returns whether something happened.
  base::Result<bool> advance(Lane& lane);
  base::Status fill(Lane& lane);
  base::Result<bool> finish_receiving(Lane& lane);
  base::Status forward(Lane& lane);
  base::Result<bool> drain(Lane& lane);

  [[nodiscard]] ByteRange range(const Lane& lane) const {
    return segment_of(view_.bytes(), segment_, lane.segment);
  }
  [[nodiscard]] std::span<std::byte> bytes(const Lane& lane) const {
    return {lane.buffer, static_cast<std::size_t>(range(lane).length())};
  }
  [[nodiscard]] int tag_of(const Lane& lane) const { return tag_ + static_cast<int>(lane.index); }

  Transport& transport_;
  WorkspaceLease memory_;
  fusion::FusedView view_;
  base::Bytes segment_;
  std::int64_t segments_;
  BroadcastTree tree_;
  int tag_;
  bool started_ = false;
  std::vector<Lane> lanes_;
};

Broadcast::Broadcast(Transport& transport, Workspace& workspace, fusion::FusedView view, int root,
                     base::Bytes segment, int tag)
    : transport_(transport),
      memory_(workspace),
      view_(std::move(view)),
      segment_(segment_length(segment, view_.bytes())),
      segments_(base::ceil_div(view_.bytes().value(), segment_.value())),
      tree_(broadcast_tree(transport.rank(), transport.size(), root, segments_)),
      tag_(tag) {
  base::check_eq(view_.chunks(), 1, "broadcast: the view has one chunk");
}

base::Status Broadcast::start() {
  const std::int64_t lanes = std::min(kLanes, segments_);
  if (lanes == 0) return {};
  RONDE_RETURN_IF_ERROR(memory_.acquire(transport_, base::Bytes(lanes * segment_.value())));
  lanes_.resize(static_cast<std::size_t>(lanes));
  for (std::int64_t index = 0; index < lanes; ++index) {
    Lane& lane = lanes_[static_cast<std::size_t>(index)];
    lane.index = index;
    lane.segment = index;
    lane.buffer = memory_.memory() + index * segment_.value();
    lane.sending.resize(tree_.children.size());
  }
  return {};
}

base::Result<StepResult> Broadcast::step() {
  if (!started_) {
    RONDE_RETURN_IF_ERROR(start());
    started_ = true;
  }
  bool progress = false;
  bool done = true;
  for (Lane& lane : lanes_) {
    const base::Result<bool> advanced = advance(lane);
    RONDE_RETURN_IF_ERROR(advanced.status());
    progress |= *advanced;
    done &= lane.phase == Lane::Phase::kDone;
  }
  if (done) {
    memory_.nothing_points_here();
    return StepResult::kDone;
  }
  return progress ? StepResult::kProgress : StepResult::kIdle;
}

base::Result<bool> Broadcast::advance(Lane& lane) {
  bool any = false;
  if (lane.phase == Lane::Phase::kFill) {
    RONDE_RETURN_IF_ERROR(fill(lane));
    any = true;
  }
  if (lane.phase == Lane::Phase::kReceiving) {
    const base::Result<bool> arrived = finish_receiving(lane);
    RONDE_RETURN_IF_ERROR(arrived.status());
    any |= *arrived;
  }
  if (lane.phase == Lane::Phase::kDrain) {
    const base::Result<bool> ended = drain(lane);
    RONDE_RETURN_IF_ERROR(ended.status());
    any |= *ended;
  }
  return any;
}

base::Status Broadcast::fill(Lane& lane) {
  if (tree_.parent) {
    lane.phase = Lane::Phase::kReceiving;
    return lane.receiving.receive(transport_, *tree_.parent, tag_of(lane), bytes(lane));
  }
  view_.copy_in(0, range(lane).begin, bytes(lane));
  view_.copy_across(0, range(lane).begin, range(lane).length());
  return forward(lane);
}

base::Result<bool> Broadcast::finish_receiving(Lane& lane) {
  const base::Result<bool> arrived = lane.receiving.ended(transport_);
  RONDE_RETURN_IF_ERROR(arrived.status());
  if (!*arrived) return false;
  // First on its way, then copied out: the others are waiting.
  RONDE_RETURN_IF_ERROR(forward(lane));
  view_.copy_out(0, range(lane).begin, bytes(lane));
  return true;
}

base::Status Broadcast::forward(Lane& lane) {
  for (std::size_t child = 0; child < tree_.children.size(); ++child) {
    RONDE_RETURN_IF_ERROR(
        lane.sending[child].send(transport_, tree_.children[child], tag_of(lane), bytes(lane)));
  }
  lane.phase = Lane::Phase::kDrain;
  return {};
}

base::Result<bool> Broadcast::drain(Lane& lane) {
  bool any = false;
  bool busy = false;
  for (RequestSlot& slot : lane.sending) {
    const base::Result<bool> ended = slot.ended(transport_);
    RONDE_RETURN_IF_ERROR(ended.status());
    any |= *ended;
    busy |= slot.busy();
  }
  if (busy) return any;
  lane.segment += std::ssize(lanes_);
  lane.phase = lane.segment < segments_ ? Lane::Phase::kFill : Lane::Phase::kDone;
  return true;
}

}  // namespace

BroadcastTree broadcast_tree(int rank, int size, int root, std::int64_t segments) {
  base::check(rank >= 0 && rank < size && root >= 0 && root < size, "broadcast: no such rank");
  // Counted from the root, the tree is the same for every root.
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
  // Place v hangs below v without its lowest bit, and has children at each bit below that one. The
  // child with the largest tree below it is served first.
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
