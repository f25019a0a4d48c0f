// SPDX-License-Identifier: Apache-2.0
// What a thread does with its core before it sleeps, on a core that counts.
#include "runtime/drive/idle.h"

#include <gtest/gtest.h>

namespace ronde::runtime {
namespace {

using base::Nanoseconds;
using std::chrono::hours;
using std::chrono::microseconds;

// What the core was told, and a clock for it.
struct Counts {
  base::ManualClock clock;
  int relaxed = 0;
  int yielded = 0;
};

struct CountingCore {
  Counts* counts;

  [[nodiscard]] base::Instant now() const { return counts->clock.now(); }
  void relax() const { ++counts->relaxed; }
  void yield() const { ++counts->yielded; }
};

class IdleTest : public ::testing::Test {
 protected:
  // How often it waited before it was time to sleep, or `most`; each time takes a microsecond.
  int waits(Nanoseconds spin, Nanoseconds yield, bool oversubscribed, bool busy, int most = 1000) {
    IdleOn<CountingCore> idle(spin, yield, oversubscribed, {&counts});
    int count = 0;
    while (count < most && idle.again(busy)) {
      ++count;
      counts.clock.advance(microseconds(1));
    }
    return count;
  }

  Counts counts;
};

TEST_F(IdleTest, WithACoreOfItsOwnItPausesAndKeepsTheCore) {
  EXPECT_EQ(waits(hours(1), hours(1), false, true), 1000);
  EXPECT_GE(counts.relaxed, 1000);
  EXPECT_EQ(counts.yielded, 0);
}

TEST_F(IdleTest, WithTooFewCoresItYieldsFromTheStart) {
  EXPECT_EQ(waits(hours(1), hours(1), true, true), 1000);
  EXPECT_EQ(counts.yielded, 1000);
  EXPECT_EQ(counts.relaxed, 0);
}

// While it pauses it reads the clock only now and then, so a few pauses more are allowed.
TEST_F(IdleTest, ItPausesThenYieldsThenSleeps) {
  const int count = waits(microseconds(40), microseconds(60), false, true);
  EXPECT_GE(count, 100);
  EXPECT_LE(count, 110);
  EXPECT_GE(counts.yielded, 50);
  EXPECT_LE(counts.yielded, 60);
}

TEST_F(IdleTest, NothingInFlightIsNoReasonToYield) {
  const int count = waits(microseconds(40), microseconds(60), false, false);
  EXPECT_GE(count, 40);
  EXPECT_LE(count, 50);
  EXPECT_EQ(counts.yielded, 0);
}

TEST_F(IdleTest, WithTooFewCoresTheTimesAreTheSame) {
  EXPECT_EQ(waits(microseconds(40), microseconds(60), true, true), 100);
  EXPECT_EQ(waits(microseconds(40), microseconds(60), true, false), 40);
}

TEST_F(IdleTest, WithoutTimeItSleepsAtOnce) {
  for (const bool oversubscribed : {false, true}) {
    EXPECT_EQ(waits(Nanoseconds(0), Nanoseconds(0), oversubscribed, true), 0);
    EXPECT_EQ(waits(Nanoseconds(0), hours(1), oversubscribed, false), 0);
  }
}

}  // namespace
}  // namespace ronde::runtime
