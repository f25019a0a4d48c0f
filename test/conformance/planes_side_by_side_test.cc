// SPDX-License-Identifier: Apache-2.0
// The data planes, every rank by itself: threads over boards on the heap, where the thread
// sanitizer sees every access, and processes over memory that they share. Ranks of one host sleep
// on their doorbells, or watch: one that misses a ring sleeps for ever, and the test fails.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "test/conformance/drawn_cases.h"
#include "test/conformance/planes.h"
#include "test/support/twister.h"

namespace ronde::conformance {
namespace {

using collectives::StepResult;

// What a rank does that has nothing to do.
enum class Patience : std::uint8_t {
  kWatches,  // looks again, yielding its core
  kSleeps,   // sleeps at once
  kMixed,    // does either, at random
};

// Runs one rank until it has finished. Thread safety: used by the thread of its rank alone.
class Sleeper {
 public:
  Sleeper(Planes& planes, int rank, const std::vector<Case>& cases, Patience patience)
      : plane_(planes.of(rank)),
        bell_(planes.board(rank).doorbell(planes.board(rank).rank())),
        rank_(planes, rank, cases),
        patience_(patience),
        random_(static_cast<std::uint64_t>(rank)) {}

  // Returns the problem, or an empty text.
  [[nodiscard]] std::string run() {
    constexpr std::int64_t kMostLooks = 200'000'000;  // they take some ten seconds at least
    for (std::int64_t looks = 0; looks < kMostLooks; ++looks) {
      if (random_() % 64 == 0) std::this_thread::yield();
      if (moves()) {
        looks = 0;
      } else if (patience_ == Patience::kSleeps ||
                 (patience_ == Patience::kMixed && random_() % 4 == 0)) {
        if (!sleep()) return "nobody has rung";
      } else {
        std::this_thread::yield();
      }
      if (done_ || !status_.ok()) return status_.ok() ? "" : status_.message();
    }
    return "stuck";
  }

 private:
  bool moves() {
    const auto result = rank_.step();
    status_ = result.status();
    done_ = result.ok() && *result == StepResult::kDone;
    return !result.ok() || *result != StepResult::kIdle;
  }
  // Returns false if the rank would have slept for ever.
  [[nodiscard]] bool sleep() {
    const std::uint64_t seen = bell_.rings();
    plane_.want_rings(true);
    bool rung = true;
    if (!moves()) {  // the look after want_rings(true)
      bell_.arm();
      if (bell_.rings() == seen) {
        pollfd entry{bell_.event_fd(), POLLIN, 0};
        rung = ::poll(&entry, 1, collectives::kHangMs) == 1;
      }
      bell_.disarm();
      bell_.drain();
    }
    // Often the rank goes on wanting rings, and is rung at every post.
    if (random_() % 2 == 0) plane_.want_rings(false);
    return rung;
  }

  collectives::DataPlane& plane_;
  const collectives::Doorbell bell_;
  RankOfPlanes rank_;
  const Patience patience_;
  testing::Twister random_;
  bool done_ = false;
  base::Status status_;
};

class SideBySide : public ::testing::TestWithParam<Leaders> {
 protected:
  // Many ranks do fewer operations, since the serial sums grow with the ranks.
  static int operations() { return GetParam().size() > 16 ? 6 : GetParam().size() > 4 ? 40 : 120; }
};

TEST_P(SideBySide, Threads) {
  const bool one_host = *std::ranges::max_element(GetParam()) == 0;
  for (const auto patience : {Patience::kWatches, Patience::kSleeps, Patience::kMixed}) {
    if (GetParam().size() > 16 && patience != Patience::kSleeps) continue;  // it takes long
    const auto lines = 1 + static_cast<std::int64_t>(patience);
    Planes planes({.leaders = GetParam(),
                   .environment = {"RONDE_SEGMENT_BYTES=512"},
                   .slot_lines = lines,
                   .block = 1000 * lines});
    const auto lists = drawn_lists(planes, static_cast<std::uint64_t>(lines), operations());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < planes.size(); ++rank) {
      threads.emplace_back([&, rank] {
        // Nobody rings for a message here.
        Sleeper mine(planes, rank, lists[collectives::at(rank)],
                     one_host ? patience : Patience::kWatches);
        EXPECT_EQ(mine.run(), "") << "rank " << rank;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(SideBySide, Processes) {
  // Messages cross no processes here, and many ranks would take long.
  if (*std::ranges::max_element(GetParam()) != 0 || GetParam().size() > 5) return;
  for (const auto patience : {Patience::kWatches, Patience::kSleeps, Patience::kMixed}) {
    const auto lines = 1 + static_cast<std::int64_t>(patience);
    Planes planes({.leaders = GetParam(), .slot_lines = lines, .heap = false});
    const auto lists = drawn_lists(planes, static_cast<std::uint64_t>(lines) + 10, operations());
    collectives::run_processes(planes.size(), [&](std::int32_t rank) {
      Sleeper mine(planes, rank, lists[collectives::at(rank)], patience);
      EXPECT_EQ(mine.run(), "") << "rank " << rank;  // printed by the child
      return !HasFailure();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, SideBySide,
                         ::testing::Values(Leaders(1, 0), Leaders(2, 0), Leaders(3, 0),
                                           Leaders(4, 0), Leaders(5, 0), Leaders(16, 0),
                                           Leaders(64, 0), Leaders{0, 1}, Leaders{0, 1, 2, 3},
                                           Leaders{0, 0, 2, 2}, Leaders{0, 1, 0, 1},
                                           Leaders{0, 0, 0, 3}, Leaders{0, 1, 2, 0, 1, 2, 0}),
                         [](const auto& one) { return "of" + text_of(one.param); });

}  // namespace
}  // namespace ronde::conformance
