// SPDX-License-Identifier: Apache-2.0
// The time of a task that listens. What it missed while it stood still (SIGSTOP, a host that swaps
// or sleeps) or did something else is nobody's silence.
#pragma once

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>

#include "bindings/trainer/fit/replica.h"

namespace ronde::trainer {

// Seconds since it was made; between two looks at most kMost of them pass. So all who wait by it
// look more often than that, and a deadline counts only while its task listens. Thread safety: any
// thread may look.
class OwnTime {
 public:
  static constexpr double kMost = 0.25;

  explicit OwnTime(std::function<double()> clock = steady_seconds)
      : clock_(std::move(clock)), looked_(clock_()) {}

  [[nodiscard]] double now() {
    const std::lock_guard lock(mutex_);
    const double looks = clock_();
    return seconds_ += std::clamp(looks - std::exchange(looked_, looks), 0.0, kMost);
  }

 private:
  const std::function<double()> clock_;
  std::mutex mutex_;
  double seconds_ = 0.0;
  double looked_;
};

}  // namespace ronde::trainer
