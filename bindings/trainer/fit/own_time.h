// SPDX-License-Identifier: Apache-2.0
// The time of a task that listens. What it missed while it stood still (SIGSTOP, a host that swaps
// or sleeps) or did something else is nobody's silence.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>

#include "bindings/trainer/fit/replica.h"

namespace ronde::trainer {

// Seconds since it was made; between two looks at most kMost of them pass. Who listens looks, once
// whenever it has listened, and more often than every kMost seconds: a deadline by this time counts
// only while its task listens. Thread safety: none.
class OwnTime {
 public:
  static constexpr double kMost = 0.5;  // not more than the time between two signs of life

  explicit OwnTime(std::function<double()> clock = steady_seconds)
      : clock_(std::move(clock)), looked_(clock_()) {}

  // A look.
  double listened() {
    const double looks = clock_();
    return seconds_ += std::clamp(looks - std::exchange(looked_, looks), 0.0, kMost);
  }
  // As of the last look.
  [[nodiscard]] double now() const { return seconds_; }

 private:
  const std::function<double()> clock_;
  double seconds_ = 0.0;
  double looked_;
};

}  // namespace ronde::trainer
