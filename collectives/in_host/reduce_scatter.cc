// SPDX-License-Identifier: Apache-2.0
// The reduce-scatter inside a host: windows of pieces that each owner sums and keeps.
#include "collectives/in_host/reduce_scatter.h"

#include <algorithm>
#include <utility>

#include "collectives/in_host/reduction.h"
#include "collectives/kernels/window_plan.h"
#include "collectives/transport/batch_times.h"

namespace ronde::collectives {

namespace {

using base::Result;

// Window w has the w-th piece of every block.
class InHostReduceScatter final : public Collective, private InHostReduction {
 public:
  InHostReduceScatter(Slots& slots, fusion::FusedView view, const Reduction& reduction,
                      const SlotTuning& tuning)
      : InHostReduction(slots, std::move(view), reduction),
        plan_(longest_block(), copy().wire_size(), 1,
              std::min(tuning.piece_bytes, slots.buffer_bytes() / slots.ranks())),
        store_(tuning.store),
        first_(slots.next_window()) {
    slots.use_windows(static_cast<std::uint64_t>(plan_.windows()));
  }

  Result<StepResult> step() override {
    if (window_ == plan_.windows()) return StepResult::kDone;
    if (!filled_) {
      if (!slots().may_fill(number())) return StepResult::kIdle;
      const TimedPhase timed(slots().times(), BatchPhase::kCopyIn);
      for_each_piece_in_slots([this](std::int32_t owner) {
        copy().in(owner, piece(owner), place(slots().rank(), owner), store_);
      });
      slots().post_filled(number());
      filled_ = true;
    }
    if (!slots().all_filled(number())) return StepResult::kIdle;
    const std::int32_t me = slots().rank();
    const TimedPhase timed(slots().times(), BatchPhase::kReduce);
    sum(me, piece(me), false, [this, me](std::int32_t rank) { return place(rank, me); });
    slots().post_done(number());
    filled_ = false;
    ++window_;
    return window_ == plan_.windows() ? StepResult::kDone : StepResult::kProgress;
  }

 private:
  [[nodiscard]] std::int64_t longest_block() const {
    std::int64_t longest = 0;
    for (std::int32_t owner = 0; owner < slots().ranks(); ++owner) {
      longest = std::max(longest, copy().elements(owner));
    }
    return longest;
  }
  [[nodiscard]] std::uint64_t number() const {
    return first_ + static_cast<std::uint64_t>(window_);
  }
  [[nodiscard]] ElementRange piece(std::int32_t owner) const {
    const ElementRange range = plan_.window(window_);
    const std::int64_t elements = copy().elements(owner);
    return {std::min(range.begin, elements), std::min(range.end, elements)};
  }
  [[nodiscard]] std::byte* place(std::int32_t rank, std::int32_t owner) const {
    return slots().buffer(rank, number()) + owner * plan_.piece_bytes();
  }

  const WindowPlan plan_;
  const StoreKind store_;
  const std::uint64_t first_;
  std::int64_t window_ = 0;
  bool filled_ = false;
};

}  // namespace

std::unique_ptr<Collective> in_host_reduce_scatter(Slots& slots, fusion::FusedView view,
                                                   const Reduction& reduction,
                                                   const SlotTuning& tuning) {
  return std::make_unique<InHostReduceScatter>(slots, std::move(view), reduction, tuning);
}

}  // namespace ronde::collectives
