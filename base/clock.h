// SPDX-License-Identifier: Apache-2.0
// Time as a parameter, so that a test can let half an hour pass in a microsecond.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace ronde::base {

using Nanoseconds = std::chrono::nanoseconds;
// A point in time of some Clock, counted from that clock's own beginning.
using Instant = std::chrono::nanoseconds;

inline constexpr Instant kNever = Instant::max();

// Thread safety: every implementation may be read from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual Instant now() const = 0;

  // Is cheaper than now() and up to kCoarse behind it: enough to see that a deadline is far away.
  [[nodiscard]] virtual Instant about_now() const { return now(); }
  static constexpr Nanoseconds kCoarse = std::chrono::milliseconds(20);

  // now + span, without overflow.
  [[nodiscard]] Instant after(Nanoseconds span) const {
    const Instant start = now();
    return span >= kNever - start ? kNever : start + span;
  }
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] Instant now() const override {
    return std::chrono::duration_cast<Nanoseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
  }
  [[nodiscard]] Instant about_now() const override {
    // This clock has the same beginning as steady_clock, which is CLOCK_MONOTONIC; a tick of the
    // kernel is at most 10 ms.
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
  }
};

// A clock that stands still until a test moves it, from any thread.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] Instant now() const override {
    return Instant(nanoseconds_.load(std::memory_order_acquire));
  }
  void advance(Nanoseconds span) {
    nanoseconds_.fetch_add(span.count(), std::memory_order_acq_rel);
  }

 private:
  std::atomic<std::int64_t> nanoseconds_{0};
};

// The milliseconds for poll(): until the deadline, but short enough to look at the clock again,
// which may be a test's.
[[nodiscard]] inline int poll_milliseconds(const Clock& clock, Instant deadline) {
  constexpr std::int64_t kSlice = 20;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, kSlice));
}

}  // namespace ronde::base
