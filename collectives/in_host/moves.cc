// SPDX-License-Identifier: Apache-2.0
// Broadcast, allgather and barrier inside a host, one piece of each sender per window.
#include "collectives/in_host/moves.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "collectives/kernels/window_plan.h"
#include "collectives/kernels/wire_copy.h"
#include "collectives/transport/batch_times.h"

namespace ronde::collectives {

namespace {

using base::Result;

// The bytes that a rank moves in a window of a broadcast or an allgather. Its buffers and the
// memory that is copied from or to should stay in a core's own cache.
std::int64_t window_bytes(const Slots& slots, const SlotTuning& tuning) {
  return std::min(2 * tuning.piece_bytes, slots.buffer_bytes());
}

class InHostBroadcast final : public Collective {
 public:
  InHostBroadcast(Slots& slots, fusion::FusedView view, std::int32_t root, const SlotTuning& tuning)
      : slots_(slots),
        view_(std::move(view)),
        copy_(view_, view_.dtype()),
        root_(root),
        plan_(copy_.elements(0), copy_.wire_size(), 1, window_bytes(slots, tuning)),
        store_(tuning.store),
        first_(slots.next_window()) {
    slots.use_windows(static_cast<std::uint64_t>(plan_.windows()));
  }

  Result<StepResult> step() override {
    if (window_ == plan_.windows()) return StepResult::kDone;
    const std::uint64_t number = first_ + static_cast<std::uint64_t>(window_);
    const ElementRange range = plan_.window(window_);
    if (slots_.rank() == root_) {
      if (!slots_.may_fill(number)) return StepResult::kIdle;
      const TimedPhase timed(slots_.times(), BatchPhase::kCopyIn);
      copy_.in(0, range, slots_.buffer(root_, number), store_);
      slots_.post_filled(number);
      view_.copy_across(0, range.begin * copy_.wire_size(), range.length() * copy_.wire_size());
    } else {
      if (!slots_.filled(root_, number)) return StepResult::kIdle;
      const TimedPhase timed(slots_.times(), BatchPhase::kCopyOut);
      copy_.out(0, range, slots_.buffer(root_, number));
      slots_.post_done(number);
    }
    ++window_;
    return window_ == plan_.windows() ? StepResult::kDone : StepResult::kProgress;
  }

 private:
  Slots& slots_;
  const fusion::FusedView view_;
  const WireCopy copy_;
  const std::int32_t root_;
  const WindowPlan plan_;
  const StoreKind store_;
  const std::uint64_t first_;
  std::int64_t window_ = 0;
};

// Window w has the w-th piece of every block.
class InHostAllgather final : public Collective {
 public:
  InHostAllgather(Slots& slots, fusion::FusedView view, const SlotTuning& tuning)
      : slots_(slots),
        view_(std::move(view)),
        copy_(view_, view_.dtype()),
        plan_(longest_block(), copy_.wire_size(), 1, window_bytes(slots, tuning)),
        store_(tuning.store),
        first_(slots.next_window()) {
    base::check(view_.chunks() == slots.ranks(), "in_host_allgather: one block for each rank");
    slots.use_windows(static_cast<std::uint64_t>(plan_.windows()));
  }

  Result<StepResult> step() override {
    if (window_ == plan_.windows()) return StepResult::kDone;
    const std::int32_t me = slots_.rank();
    if (!filled_) {
      if (!slots_.may_fill(number())) return StepResult::kIdle;
      const TimedPhase timed(slots_.times(), BatchPhase::kCopyIn);
      copy_.in(me, piece(me), slots_.buffer(me, number()), store_);
      slots_.post_filled(number());
      view_.copy_across(me, piece(me).begin * copy_.wire_size(),
                        piece(me).length() * copy_.wire_size());
      filled_ = true;
      taken_ = 1;
    }
    // Each rank begins with the next one, so that not all of them read the same slots at once.
    const std::int32_t from = (me + taken_) % slots_.ranks();
    if (taken_ < slots_.ranks()) {
      if (!slots_.filled(from, number())) return StepResult::kIdle;
      const TimedPhase timed(slots_.times(), BatchPhase::kCopyOut);
      copy_.out(from, piece(from), slots_.buffer(from, number()));
      ++taken_;
      if (taken_ < slots_.ranks()) return StepResult::kProgress;
    }
    slots_.post_done(number());
    filled_ = false;
    ++window_;
    return window_ == plan_.windows() ? StepResult::kDone : StepResult::kProgress;
  }

 private:
  [[nodiscard]] std::int64_t longest_block() const {
    std::int64_t longest = 0;
    for (int block = 0; block < view_.chunks(); ++block) {
      longest = std::max(longest, copy_.elements(block));
    }
    return longest;
  }
  [[nodiscard]] std::uint64_t number() const {
    return first_ + static_cast<std::uint64_t>(window_);
  }
  [[nodiscard]] ElementRange piece(std::int32_t block) const {
    const ElementRange range = plan_.window(window_);
    const std::int64_t elements = copy_.elements(block);
    return {std::min(range.begin, elements), std::min(range.end, elements)};
  }

  Slots& slots_;
  const fusion::FusedView view_;
  const WireCopy copy_;
  const WindowPlan plan_;
  const StoreKind store_;
  const std::uint64_t first_;
  std::int64_t window_ = 0;
  bool filled_ = false;
  std::int32_t taken_ = 0;
};

class InHostBarrier final : public Collective {
 public:
  explicit InHostBarrier(Slots& slots) : slots_(slots), window_(slots.next_window()) {
    slots.use_windows(1);
  }

  Result<StepResult> step() override {
    if (!posted_) {
      slots_.post_filled(window_);
      posted_ = true;
    }
    return slots_.all_filled(window_) ? StepResult::kDone : StepResult::kIdle;
  }

 private:
  Slots& slots_;
  const std::uint64_t window_;
  bool posted_ = false;
};

}  // namespace

std::unique_ptr<Collective> in_host_broadcast(Slots& slots, fusion::FusedView view,
                                              std::int32_t root, const SlotTuning& tuning) {
  return std::make_unique<InHostBroadcast>(slots, std::move(view), root, tuning);
}

std::unique_ptr<Collective> in_host_allgather(Slots& slots, fusion::FusedView view,
                                              const SlotTuning& tuning) {
  return std::make_unique<InHostAllgather>(slots, std::move(view), tuning);
}

std::unique_ptr<Collective> in_host_barrier(Slots& slots) {
  return std::make_unique<InHostBarrier>(slots);
}

}  // namespace ronde::collectives
