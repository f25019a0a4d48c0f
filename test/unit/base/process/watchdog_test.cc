// SPDX-License-Identifier: Apache-2.0
// A watchdog ends the process at its deadline, and only then.
#include "base/process/watchdog.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

namespace ronde::base {
namespace {

TEST(WatchdogTest, LetsACallThatReturnsInTimeGoOn) {
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(Watchdog::start(std::chrono::hours(1), "never printed").ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(WatchdogDeathTest, EndsTheProcessWithItsTextAtTheDeadline) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto watchdog = Watchdog::start(std::chrono::milliseconds(20), "rank 1 never came");
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      ::testing::ExitedWithCode(1), "error: rank 1 never came");
}

// No address space has room for such a stack, so that the system refuses every thread.
TEST(WatchdogTest, IsAnErrorWhereNoThreadCanBeStarted) {
  pthread_attr_t before;
  ASSERT_EQ(::pthread_getattr_default_np(&before), 0);
  pthread_attr_t huge;
  ASSERT_EQ(::pthread_attr_init(&huge), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&huge, std::size_t{1} << 48), 0);
  ASSERT_EQ(::pthread_setattr_default_np(&huge), 0);
  const auto watchdog = Watchdog::start(std::chrono::hours(1), "never printed");
  EXPECT_EQ(::pthread_setattr_default_np(&before), 0);
  ASSERT_FALSE(watchdog.ok());
  EXPECT_EQ(watchdog.status().code(), Code::kSystem);
  EXPECT_NE(watchdog.status().message().find("could not start the thread that watches"),
            std::string::npos)
      << watchdog.status().message();
}

}  // namespace
}  // namespace ronde::base
