// SPDX-License-Identifier: Apache-2.0
// Time as a parameter, so that a test can let half an hour pass in a microsecond.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ronde::base {

using Nanoseconds = std::chrono::nanoseconds;
// A point in time of some Clock, since that clock's own beginning.
using Instant = std::chrono::nanoseconds;

inline constexpr Instant kNever = Instant::max();

// Thread safety: every implementation may be read from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual Instant now() const = 0;

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
};

// A clock that stands still until it is told.
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

}  // namespace ronde::base
