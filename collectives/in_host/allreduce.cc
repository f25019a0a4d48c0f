// SPDX-License-Identifier: Apache-2.0
// The two kinds of allreduce inside a host: one window for small vectors, a pipeline for others.
#include "collectives/in_host/allreduce.h"

#include <algorithm>
#include <utility>

#include "collectives/in_host/reduction.h"
#include "collectives/kernels/window_plan.h"
#include "collectives/transport/batch_times.h"

namespace ronde::collectives {

namespace {

using base::Result;

// One window in which every rank sums everything.
class SmallAllreduce final : public Collective, private InHostReduction {
 public:
  SmallAllreduce(Slots& slots, fusion::FusedView view, const Reduction& reduction)
      : InHostReduction(slots, std::move(view), reduction),
        all_{0, copy().elements(0)},
        inline_(copy().elements(0) * copy().wire_size() <= std::int64_t{Slots::kInlineBytes}),
        window_(slots.next_window()) {
    slots.use_windows(1);
  }

  Result<StepResult> step() override {
    if (!filled_) {
      if (!slots().may_fill(window_)) return StepResult::kIdle;
      const TimedPhase timed(slots().times(), BatchPhase::kCopyIn);
      copy().in(0, all_, place(slots().rank()), StoreKind::kTemporal);
      slots().post_filled(window_);
      filled_ = true;
    }
    if (!slots().all_filled(window_)) return StepResult::kIdle;
    const TimedPhase timed(slots().times(), BatchPhase::kReduce);
    sum(0, all_, false, [this](std::int32_t rank) { return place(rank); });
    // No rank waits until this window is done, and the next window's "filled" includes "done".
    return StepResult::kDone;
  }

 private:
  [[nodiscard]] std::byte* place(std::int32_t rank) const {
    return inline_ ? slots().inline_bytes(rank, window_) : slots().buffer(rank, window_);
  }

  const ElementRange all_;
  const bool inline_;
  const std::uint64_t window_;
  bool filled_ = false;
};

// A pipeline of windows.
class WindowedAllreduce final : public Collective, private InHostReduction {
 public:
  WindowedAllreduce(Slots& slots, fusion::FusedView view, const Reduction& reduction,
                    const SlotTuning& tuning)
      : InHostReduction(slots, std::move(view), reduction),
        plan_(copy().elements(0), copy().wire_size(), slots.ranks(),
              std::min(tuning.piece_bytes, slots.buffer_bytes() / slots.ranks())),
        store_(tuning.store),
        first_(slots.next_window()) {
    slots.use_windows(static_cast<std::uint64_t>(plan_.windows()));
  }

  Result<StepResult> step() override {
    if (emptied_ == plan_.windows()) return StepResult::kDone;
    switch (phase_) {
      case Phase::kFill:
        if (filled_ < plan_.windows()) {
          if (!slots().may_fill(number(filled_))) return StepResult::kIdle;
          fill(filled_++);
        }
        return next(filled_ == 1 && plan_.windows() > 1 ? Phase::kFill : Phase::kReduce);
      case Phase::kReduce:
        if (reduced_ < plan_.windows()) {
          if (!slots().all_filled(number(reduced_))) return StepResult::kIdle;
          reduce(reduced_++);
        }
        return next(reduced_ == 1 && plan_.windows() > 1 ? Phase::kFill : Phase::kEmpty);
      case Phase::kEmpty:
        if (!slots().all_done(number(emptied_))) return StepResult::kIdle;
        empty(emptied_++);
        if (emptied_ == plan_.windows()) return StepResult::kDone;
        return next(Phase::kFill);
    }
    return StepResult::kIdle;
  }

 private:
  enum class Phase : std::uint8_t { kFill, kReduce, kEmpty };

  StepResult next(Phase phase) {
    phase_ = phase;
    return StepResult::kProgress;
  }
  [[nodiscard]] std::uint64_t number(std::int64_t window) const {
    return first_ + static_cast<std::uint64_t>(window);
  }
  // The place of the piece of `owner` in the buffer of `rank`.
  [[nodiscard]] std::byte* place(std::int32_t rank, std::int64_t window, std::int32_t owner) const {
    return slots().buffer(rank, number(window)) + owner * plan_.piece_bytes();
  }
  void fill(std::int64_t window) {
    const TimedPhase timed(slots().times(), BatchPhase::kCopyIn);
    for_each_piece_in_slots([this, window](std::int32_t owner) {
      copy().in(0, plan_.piece(window, owner), place(slots().rank(), window, owner), store_);
    });
    if (window == 0) {
      slots().post_filled(number(window));
    } else {
      slots().post_filled_ahead(number(window));
    }
  }
  void reduce(std::int64_t window) {
    const TimedPhase timed(slots().times(), BatchPhase::kReduce);
    const std::int32_t me = slots().rank();
    sum(0, plan_.piece(window, me), true,
        [this, me, window](std::int32_t rank) { return place(rank, window, me); });
    slots().post_done(number(window));
  }
  void empty(std::int64_t window) {
    const TimedPhase timed(slots().times(), BatchPhase::kCopyOut);
    for_each_piece_in_slots([this, window](std::int32_t owner) {
      copy().out(0, plan_.piece(window, owner), place(slots().rank(), window, owner));
    });
  }

  const WindowPlan plan_;
  const StoreKind store_;
  const std::uint64_t first_;
  Phase phase_ = Phase::kFill;
  // Numbers of windows.
  std::int64_t filled_ = 0;
  std::int64_t reduced_ = 0;
  std::int64_t emptied_ = 0;
};

// Below the first limit a second synchronisation costs more than that every rank reads all
// contributions; what is read in all grows with the ranks. Beyond the second limit what a rank
// reads and writes leaves its first cache: at 16 KiB 2 ranks would take up to twice the time of the
// windows.
constexpr std::int64_t kSmallVectorOfAllRanks = 64 << 10;
constexpr std::int64_t kSmallVector = 12 << 10;

}  // namespace

std::int64_t small_vector_bytes(std::int32_t ranks, std::int64_t buffer_bytes) {
  return std::min({kSmallVector, kSmallVectorOfAllRanks / ranks, buffer_bytes});
}

std::unique_ptr<Collective> in_host_allreduce(Slots& slots, fusion::FusedView view,
                                              const Reduction& reduction,
                                              const SlotTuning& tuning) {
  const bool compressed = reduction.compression != base::Compression::kNone;
  if (!compressed &&
      view.bytes().value() <= small_vector_bytes(slots.ranks(), slots.buffer_bytes())) {
    return std::make_unique<SmallAllreduce>(slots, std::move(view), reduction);
  }
  return std::make_unique<WindowedAllreduce>(slots, std::move(view), reduction, tuning);
}

}  // namespace ronde::collectives
