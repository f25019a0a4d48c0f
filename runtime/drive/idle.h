// SPDX-License-Identifier: Apache-2.0
// How a thread watches before it sleeps: with the CPU's pause, then with sched_yield, then not at
// all.
#pragma once

#include <sched.h>

#include <utility>

#include "base/clock.h"

namespace ronde::runtime {

// Tells the CPU that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// What a thread can do with its core while it waits. A test replaces it.
struct OwnCore {
  base::SteadyClock clock;

  [[nodiscard]] base::Instant now() const { return clock.now(); }
  void relax() const { cpu_relax(); }
  void yield() const { ::sched_yield(); }
};

// Decides how one thread watches. It measures real time, whatever the engine's clock is, because it
// is about the CPU.
//
// Thread safety: none; one thread uses it.
template <typename Core>
class IdleOn {
 public:
  // Pauses for `spin`, then yields for `yield` more while the agent is busy. oversubscribed: yields
  // from the start, because with more ranks than cores a pause only keeps the core from the rank
  // for which this one waits.
  IdleOn(base::Nanoseconds spin, base::Nanoseconds yield, bool oversubscribed, Core core = {})
      : core_(std::move(core)),
        spin_(spin),
        total_(spin + yield),
        oversubscribed_(oversubscribed) {}

  // Waits a moment; false when it is time to sleep.
  bool again(bool busy) {
    if (round_++ == 0) begin_ = core_.now();
    const bool spins = !oversubscribed_ && gone_ < spin_;
    // A look and a few pauses are short, and the clock is not free, so it is not read every round.
    if (!spins || round_ % kRoundsPerReading == 0) gone_ = core_.now() - begin_;
    if (gone_ >= (busy ? total_ : spin_)) return false;
    if (oversubscribed_ || gone_ >= spin_) {
      core_.yield();
      return true;
    }
    for (int i = 0; i < kPauses; ++i) core_.relax();
    return true;
  }

 private:
  // Between two looks: a few dozen nanoseconds, about as much as a look costs.
  static constexpr int kPauses = 2;
  static constexpr unsigned kRoundsPerReading = 8;

  Core core_;
  base::Nanoseconds spin_;
  base::Nanoseconds total_;
  base::Instant begin_{0};
  base::Nanoseconds gone_{0};
  unsigned round_ = 0;
  bool oversubscribed_;
};

using Idle = IdleOn<OwnCore>;

}  // namespace ronde::runtime
