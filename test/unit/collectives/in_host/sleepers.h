// SPDX-License-Identifier: Apache-2.0
// Ranks that run a scenario and sleep on their doorbells whenever nothing can go on, as the agent
// does: a rank that misses a ring sleeps for ever, and the test fails.
#pragma once

#include <poll.h>
#include <sched.h>

#include <cstdint>
#include <random>
#include <string>

#include "test/unit/collectives/boards.h"
#include "test/unit/collectives/in_host/scenario_rank.h"

namespace ronde::collectives {

// The behaviour of a rank that has nothing to do.
enum class Patience : std::uint8_t {
  kWatches,  // looks again, yielding its core
  kSleeps,   // sleeps at once
  kMixed,    // does either, at random
};

// Runs one rank until it has finished. Thread safety: used by the thread of its rank alone.
class InHostSleeper {
 public:
  InHostSleeper(RankOfScenario& rank, Patience patience, std::uint64_t seed)
      : rank_(rank),
        bell_(rank.slots().board().doorbell(rank.slots().rank())),
        patience_(patience),
        random_(seed) {}

  // Returns the problem, or an empty text.
  [[nodiscard]] std::string run() {
    while (!rank_.finished() && rank_.problem().empty()) {
      if (random_() % 64 == 0) ::sched_yield();
      if (rank_.step()) {
        idle_ = 0;
        continue;
      }
      if (patience_ == Patience::kSleeps || (patience_ == Patience::kMixed && random_() % 4 == 0)) {
        if (!sleep()) return rank_.text() + ": nobody has rung";
      } else if (++idle_ > kMostLooks) {
        return rank_.text() + ": stuck";
      } else {
        ::sched_yield();
      }
    }
    return rank_.problem();
  }

 private:
  // So many looks take some ten seconds at least.
  static constexpr std::int64_t kMostLooks = 200'000'000;

  // Returns false if the rank would have slept for ever.
  [[nodiscard]] bool sleep() {
    const std::uint64_t seen = bell_.rings();
    rank_.slots().want_rings(true);
    const bool moved = rank_.step();  // the look after want_rings(true)
    bool rung = true;
    if (!moved && !rank_.finished()) {
      bell_.arm();
      if (bell_.rings() == seen) {
        pollfd entry{bell_.event_fd(), POLLIN, 0};
        rung = ::poll(&entry, 1, kHangMs) == 1;
      }
      bell_.disarm();
      bell_.drain();
    }
    // Often the rank goes on wanting rings, and is rung at every post.
    if (random_() % 2 == 0) rank_.slots().want_rings(false);
    return rung;
  }

  RankOfScenario& rank_;
  const Doorbell bell_;
  const Patience patience_;
  std::mt19937_64 random_;
  std::int64_t idle_ = 0;
};

}  // namespace ronde::collectives
