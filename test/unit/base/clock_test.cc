// SPDX-License-Identifier: Apache-2.0
// Time as a parameter.
#include "base/clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace ronde::base {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(Clock, TheSteadyClockGoesForward) {
  const SteadyClock clock;
  const Instant start = clock.now();
  const Instant later = clock.now();
  EXPECT_GE(later, start);
  EXPECT_GE(clock.after(hours(1)), start + hours(1));
}

// Twice, a while apart, so that one whole second is not what it happens to be good at. The shortest
// of many: a thread may lose its core between the two readings.
TEST(Clock, TheCheapReadingIsALittleBehind) {
  const SteadyClock clock;
  for (int time = 0; time < 2; ++time) {
    Nanoseconds behind = Nanoseconds::max();
    for (int i = 0; i < 1000; ++i) {
      const Instant about = clock.about_now();
      const Instant now = clock.now();
      ASSERT_LE(about, now);
      behind = std::min(behind, now - about);
    }
    EXPECT_LE(behind, Clock::kCoarse);
    std::this_thread::sleep_for(milliseconds(100));
  }
}

TEST(Clock, TheManualClockStandsStillUntilItIsTold) {
  ManualClock clock;
  const Instant start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(milliseconds(1500));
  EXPECT_EQ(clock.now() - start, milliseconds(1500));
  EXPECT_EQ(clock.after(milliseconds(1)), start + milliseconds(1501));
}

TEST(Clock, AfterDoesNotOverflow) {
  ManualClock clock;
  EXPECT_EQ(clock.after(kNever), kNever);
  clock.advance(hours(1));
  EXPECT_EQ(clock.after(kNever), kNever);
  EXPECT_EQ(clock.after(kNever - hours(1)), kNever);
  EXPECT_EQ(clock.after(kNever - hours(2)), kNever - hours(1));
  EXPECT_EQ(clock.after(Nanoseconds(0)), clock.now());
}

}  // namespace
}  // namespace ronde::base
