// SPDX-License-Identifier: Apache-2.0
// A watchdog ends the process at its deadline, and only then.
#include "base/watchdog.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace ronde::base {
namespace {

TEST(WatchdogTest, LetsACallThatReturnsInTimeGoOn) {
  const auto start = std::chrono::steady_clock::now();
  { const Watchdog watchdog(std::chrono::hours(1), "never printed"); }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(WatchdogDeathTest, EndsTheProcessWithItsTextAtTheDeadline) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const Watchdog watchdog(std::chrono::milliseconds(20), "rank 1 never came");
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      ::testing::ExitedWithCode(1), "error: rank 1 never came");
}

}  // namespace
}  // namespace ronde::base
