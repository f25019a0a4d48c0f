// SPDX-License-Identifier: Apache-2.0
// Whether the submitter of a plan entry waits at once, as its last uses tell. Then the engine need
// not wake its background thread for it (AgentRunner::defer), which is what submit-then-wait costs
// more than the blocking call. Where it does not wait after all, the work begins later.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace ronde::runtime {

// It keeps account in nanoseconds: a use whose submitter waited at once earns what a deferred ring
// saves, and any other costs what deferring delays it, whether or not it was deferred. So a wrong
// guess is forgotten only by as many right ones as make good for it.
//
// Thread safety: every function may be called from any thread. Two that use one entry at a time may
// lose what the other has learnt.
class WaitingHabit {
 public:
  // Deferring delays a work until its submitter waits, at most so long (AgentRunner::kMostOwed).
  static constexpr base::Nanoseconds kLongestDelay = std::chrono::milliseconds(1);
  // What counts as at once.
  static constexpr base::Nanoseconds kAtOnce = std::chrono::microseconds(5);
  // What a ring costs the submitter and the background thread, at least.
  static constexpr base::Nanoseconds kSaved = std::chrono::microseconds(2);
  // From so much on rings are deferred, and more than the most is not kept: one late wait of 16
  // microseconds or more ends it, whatever was earned before.
  static constexpr base::Nanoseconds kEnough = std::chrono::microseconds(16);
  static constexpr base::Nanoseconds kMost = 2 * kEnough;

  // The balance after one more use, whose submitter waited `gap` after it had submitted.
  [[nodiscard]] static constexpr base::Nanoseconds after(base::Nanoseconds balance,
                                                         base::Nanoseconds gap) {
    if (gap <= kAtOnce) return std::min(balance + kSaved, kMost);
    return std::max(balance - std::min(gap, kLongestDelay), -kLongestDelay);
  }

  [[nodiscard]] bool waits_at_once() const { return balance() >= kEnough; }

  // One use: submitted() takes the balance away, and waited() gives it back, for better or worse. A
  // submitter that never waits has thus forgotten it all.
  [[nodiscard]] base::Nanoseconds submitted() {
    const base::Nanoseconds before = balance();
    set(-kLongestDelay);
    return before;
  }
  void waited(base::Nanoseconds before, base::Nanoseconds gap) { set(after(before, gap)); }

  // The entry stands for another tensor now.
  void forget() { set(base::Nanoseconds(0)); }

 private:
  [[nodiscard]] base::Nanoseconds balance() const {
    return base::Nanoseconds(balance_.load(std::memory_order_relaxed));
  }
  void set(base::Nanoseconds balance) {
    balance_.store(balance.count(), std::memory_order_relaxed);
  }

  std::atomic<std::int64_t> balance_{0};
};

}  // namespace ronde::runtime
