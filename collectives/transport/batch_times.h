// SPDX-License-Identifier: Apache-2.0
// How long the phases of a batch take on this rank, for the timeline. The phases of one batch
// overlap: while one window is reduced the next is copied in. So each has the time from its first
// step to its last, and the part of it in which this rank was busy with it; where there are many
// steps that is an estimate from some of them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace ronde::collectives {

enum class BatchPhase : std::uint8_t { kCopyIn, kReduce, kCopyOut, kBetweenHosts };
inline constexpr std::size_t kBatchPhases = 4;

struct PhaseTime {
  base::Instant first = base::kNever;  // kNever: the batch has no such phase
  base::Instant last{};
  base::Nanoseconds busy{};
};

// Thread safety: measure_with() from any thread, the rest is for the agent.
class BatchTimes {
 public:
  // From now on phases are measured with this clock; nullptr: not any more. The clock must outlive
  // this object.
  void measure_with(const base::Clock* clock) { clock_.store(clock, std::memory_order_release); }
  [[nodiscard]] const base::Clock* clock() const {
    // What is off costs a load: a set pointer is followed by reads of the clock behind it only.
    return clock_.load(std::memory_order_acquire);
  }

  void begin() {
    phases_ = {};
    steps_ = {};
  }
  // Whether the next step of the phase is measured: reading the clock for every window of a large
  // batch would take a hundredth of its time. Returns for how many steps this one stands, or 0.
  int next(BatchPhase phase) {
    const std::uint32_t step = steps_[static_cast<std::size_t>(phase)]++;
    if (step < kAllMeasured) return 1;
    return step % static_cast<std::uint32_t>(kOneOf) == 0 ? kOneOf : 0;
  }
  void add(BatchPhase phase, base::Instant begin, base::Instant end, int steps) {
    PhaseTime& time = phases_[static_cast<std::size_t>(phase)];
    time.first = std::min(time.first, begin);
    time.last = end;
    time.busy += steps * (end - begin);
  }
  [[nodiscard]] const std::array<PhaseTime, kBatchPhases>& phases() const { return phases_; }

 private:
  static constexpr std::uint32_t kAllMeasured = 16;
  static constexpr int kOneOf = 4;

  std::atomic<const base::Clock*> clock_{nullptr};
  std::array<std::uint32_t, kBatchPhases> steps_{};
  std::array<PhaseTime, kBatchPhases> phases_;
};

// Measures a phase while it lives. Thread safety: the agent's.
class TimedPhase {
 public:
  TimedPhase(BatchTimes& times, BatchPhase phase)
      : times_(times), phase_(phase), clock_(times.clock()) {
    if (clock_ != nullptr) steps_ = times.next(phase);
    if (steps_ > 0) begin_ = clock_->now();
  }
  ~TimedPhase() {
    if (steps_ > 0) times_.add(phase_, begin_, clock_->now(), steps_);
  }
  TimedPhase(const TimedPhase&) = delete;
  TimedPhase& operator=(const TimedPhase&) = delete;

 private:
  BatchTimes& times_;
  const BatchPhase phase_;
  const base::Clock* const clock_;
  int steps_ = 0;
  base::Instant begin_{};
};

}  // namespace ronde::collectives
