// SPDX-License-Identifier: Apache-2.0
// Which ends of a job are worth another start, and when it comes.
#include "launcher/restarts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>

namespace ronde::launcher {
namespace {

using std::chrono::seconds;

TEST(RestartsTest, AFailureIsRestarted) {
  for (const int exit_code : {1, 3, 125, 134, 137, 139, 143, 255}) {
    EXPECT_TRUE(may_restart({exit_code, 0}, {})) << exit_code;
  }
  Cause unreachable;
  unreachable.trouble = "host b cannot be reached";
  EXPECT_TRUE(may_restart({1, 0}, unreachable));
}

TEST(RestartsTest, AWrongCommandLineIsNot) {
  for (const int exit_code : {0, 2, 126, 127}) {
    EXPECT_FALSE(may_restart({exit_code, 0}, {})) << exit_code;
  }
  Cause slots;
  slots.too_few_slots = true;
  EXPECT_FALSE(may_restart({1, 0}, slots));
}

TEST(RestartsTest, AJobThatWasToldToStopIsNot) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    EXPECT_FALSE(may_restart({128 + signal, signal}, {}));
    EXPECT_FALSE(may_restart({3, signal}, {}));
  }
  EXPECT_FALSE(may_restart({141, SIGPIPE, true}, {}));
  EXPECT_FALSE(may_restart({1, 0, true}, {}));
}

TEST(RestartsTest, ThePauseDoublesUpToHalfAMinute) {
  EXPECT_EQ(pause_before(1), seconds(1));
  EXPECT_EQ(pause_before(2), seconds(2));
  EXPECT_EQ(pause_before(5), seconds(16));
  EXPECT_EQ(pause_before(6), seconds(30));
  EXPECT_EQ(pause_before(1'000'000), seconds(30));
}

TEST(RestartsTest, TheLine) {
  EXPECT_EQ(restart_line("rank 1 ended with exit code 3", 2, 4),
            "rank 1 ended with exit code 3: restart 2 of 4 follows in 2 s");
}

}  // namespace
}  // namespace ronde::launcher
