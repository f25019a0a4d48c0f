// SPDX-License-Identifier: Apache-2.0
// What ends of a job are called, which are worth another start, and when it comes.
#include "launcher/job/outcome.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace ronde::launcher {
namespace {

using std::chrono::seconds;

Outcome outcome(int exit_code, std::optional<std::int64_t> rank = {}, const std::string& host = "",
                const std::string& trouble = "") {
  Outcome result;
  result.exit_code = exit_code;
  result.rank = rank;
  result.host = host;
  result.trouble = trouble;
  return result;
}

TEST(EndingsTest, TheLastLineSaysWhatHappened) {
  EXPECT_EQ(verdict(outcome(0)), "");
  EXPECT_EQ(verdict(outcome(3)), "the job failed with exit code 3");
  EXPECT_EQ(verdict(outcome(139)), "a rank was killed by SIGSEGV (exit code 139)");
  EXPECT_EQ(verdict(outcome(255)), "the job failed with exit code 255");
  EXPECT_EQ(verdict({130, SIGINT}), "the job was ended by SIGINT");
}

// Rank and host; a reader that goes away; why nothing started.
TEST(EndingsTest, TheLastLineNamesTheRankTheHostAndTheTrouble) {
  EXPECT_EQ(verdict(outcome(7, 1, "vm")), "rank 1 on host vm ended with exit code 7");
  EXPECT_EQ(verdict(outcome(7, 1)), "rank 1 ended with exit code 7");
  EXPECT_EQ(verdict(outcome(137, 0, "b")),
            "rank 0 on host b was killed by SIGKILL (exit code 137)");
  EXPECT_EQ(verdict({141, SIGPIPE, true}), "");
  EXPECT_EQ(verdict(outcome(1, {}, "", "host b cannot be reached")), "host b cannot be reached");
}

// What the exit codes mean, in words.
TEST(EndingsTest, TheLastLineSaysWhatACodeMeans) {
  for (const int signal : {0, SIGTERM}) {
    EXPECT_EQ(verdict({75, signal}),
              "the training was stopped and has saved its state (exit code 75), and goes on when "
              "it is started again");
  }
  EXPECT_EQ(verdict(outcome(78, 1, "vm")),
            "rank 1 on host vm ended with exit code 78: its settings or its data are wrong, and "
            "starting it again does not help");
}

TEST(RestartsTest, AFailureIsRestarted) {
  for (const int exit_code : {1, 3, 75, 125, 134, 137, 139, 143, 255}) {
    EXPECT_TRUE(may_restart({exit_code, 0})) << exit_code;
  }
  EXPECT_TRUE(may_restart(outcome(1, {}, "", "host b cannot be reached")));
}

TEST(RestartsTest, WhatARepeatCannotMendIsNot) {
  for (const int exit_code : {0, 2, 78, 126, 127}) {
    EXPECT_FALSE(may_restart({exit_code, 0})) << exit_code;
  }
}

TEST(RestartsTest, AJobThatWasToldToStopIsNot) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    EXPECT_FALSE(may_restart({128 + signal, signal}));
    EXPECT_FALSE(may_restart({3, signal}));
    EXPECT_FALSE(may_restart({75, signal}));
  }
  EXPECT_FALSE(may_restart({141, SIGPIPE, true}));
  EXPECT_FALSE(may_restart({1, 0, true}));
}

TEST(RestartsTest, ThePauseDoublesUpToHalfAMinute) {
  EXPECT_EQ(pause_before(1), seconds(1));
  EXPECT_EQ(pause_before(2), seconds(2));
  EXPECT_EQ(pause_before(5), seconds(16));
  EXPECT_EQ(pause_before(6), seconds(30));
  EXPECT_EQ(pause_before(1'000'000), seconds(30));
}

using Next = Restarts::Next;

Start failed(seconds lasted, std::string last_line = "", int exit_code = 1) {
  Outcome ended = outcome(exit_code);
  ended.last_line = std::move(last_line);
  return {std::move(ended), lasted};
}

TEST(RestartsTest, NoMoreThanSoOften) {
  Restarts restarts(2, seconds(100));
  EXPECT_EQ(restarts.after(failed(seconds(1))), Next::kAgain);
  EXPECT_EQ(restarts.number(), 1);
  EXPECT_EQ(restarts.after(failed(seconds(99), "", 75)), Next::kAgain);
  EXPECT_EQ(restarts.number(), 2);
  EXPECT_EQ(restarts.after(failed(seconds(99))), Next::kEnd);
  EXPECT_EQ(Restarts(0, seconds(100)).after(failed(seconds(1))), Next::kEnd);
  EXPECT_EQ(Restarts(9, seconds(100)).after(failed(seconds(1), "", 0)), Next::kEnd);
}

// Three preemptions in three weeks ended a job that was healthy.
TEST(RestartsTest, AStartThatRanLongIsForgivenTheOnesBefore) {
  Restarts restarts(2, seconds(100));
  EXPECT_EQ(restarts.after(failed(seconds(50))), Next::kAgain);
  EXPECT_EQ(restarts.after(failed(seconds(50))), Next::kAgain);
  for (int week = 0; week < 5; ++week) {
    EXPECT_EQ(restarts.after(failed(seconds(100), "killed")), Next::kAgain);
    EXPECT_EQ(restarts.number(), 1) << "and the pause is the first again";
  }
  EXPECT_EQ(restarts.after(failed(seconds(99))), Next::kAgain);
  EXPECT_EQ(restarts.after(failed(seconds(99))), Next::kEnd);
}

TEST(RestartsTest, TheSameFailureAtOnceTwiceIsTheEnd) {
  Restarts restarts(9, seconds(3600));
  EXPECT_EQ(restarts.after(failed(seconds(2), "12:00:01 other flags")), Next::kAgain);
  EXPECT_EQ(restarts.after(failed(seconds(2), "12:00:09 other flags")), Next::kGiveUp);
}

TEST(RestartsTest, AnotherLineNoLineOrALongerStartIsNot) {
  Restarts restarts(99, seconds(3600));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(restarts.after(failed(seconds(2))), Next::kAgain) << "no line";
  }
  EXPECT_EQ(restarts.after(failed(seconds(2), "a")), Next::kAgain);
  EXPECT_EQ(restarts.after(failed(seconds(2), "b")), Next::kAgain);
  EXPECT_EQ(restarts.after(failed(seconds(60), "b")), Next::kAgain) << "not at once";
  EXPECT_EQ(restarts.after(failed(seconds(2), "b")), Next::kAgain) << "not in a row";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(restarts.after(failed(seconds(2), "stopped", 75)), Next::kAgain) << "no failure";
  }
}

TEST(RestartsTest, TheLine) {
  EXPECT_EQ(restart_line("rank 1 ended with exit code 3", 2, 4),
            "rank 1 ended with exit code 3: restart 2 of 4 follows in 2 s");
  EXPECT_EQ(
      giving_up_line("rank 1 ended with exit code 3"),
      "rank 1 ended with exit code 3: not started again, since two starts in a row have ended "
      "at once with the same last line");
}

}  // namespace
}  // namespace ronde::launcher
