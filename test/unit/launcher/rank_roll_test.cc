// SPDX-License-Identifier: Apache-2.0
// Which rank is to blame, and with which code a job ends.
#include "launcher/job/rank_roll.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

namespace ronde::launcher {
namespace {

int exits(int code) { return code << 8; }

struct Case {
  const char* what;
  std::vector<std::pair<int, int>> ends;  // rank and wait status, as they come
  int rank;                               // to blame; -1: nobody
  int code;
};

const Case kCases[] = {
    {"all well", {{0, 0}, {1, 0}}, -1, 0},
    {"one has saved", {{0, 0}, {1, exits(75)}}, -1, 75},
    {"the first that fails", {{1, exits(3)}, {0, exits(1)}}, 1, 3},
    {"one that was killed, which another has been told", {{0, exits(1)}, {1, SIGKILL}}, 1, 137},
    {"a fault, too", {{0, exits(1)}, {1, SIGSEGV}}, 1, 139},
    {"an exception is an answer to a failure", {{1, exits(3)}, {0, SIGABRT}}, 1, 3},
    {"what says what is wrong stays", {{1, exits(78)}, {0, SIGKILL}}, 1, 78},
    {"and so does the first signal", {{1, SIGSEGV}, {0, SIGKILL}}, 1, 139},
};

TEST(RankRollTest, TheOneToBlame) {
  for (const Case& one : kCases) {
    RankRoll roll(false);
    for (const int rank : {0, 1}) roll.add(0, rank);
    for (const auto& [rank, status] : one.ends) roll.count({rank, status, "said"}, true);
    EXPECT_TRUE(roll.all_ended()) << one.what;
    EXPECT_EQ(roll.to_blame().value_or(-1), one.rank) << one.what;
    EXPECT_EQ(roll.exit_code(), one.code) << one.what;
  }
}

TEST(RankRollTest, NobodyIsToBlameForBeingEnded) {
  RankRoll roll(false);
  for (const int rank : {0, 1}) roll.add(0, rank);
  roll.count({1, exits(3), "why"}, true);
  roll.count({0, SIGKILL, ""}, false);
  EXPECT_EQ(roll.to_blame(), 1);
  EXPECT_EQ(roll.last_line(), "why");
}

TEST(RankRollTest, MpirunMayEndWithoutAWordOfItsRanks) {
  RankRoll roll(true);
  for (const int rank : {0, 1}) roll.add(0, rank);
  roll.count({0, exits(7), ""}, true);
  roll.count({1, SIGKILL, ""}, true);
  EXPECT_TRUE(roll.mpirun_runs());
  roll.count({-1, exits(1), ""}, true);
  EXPECT_TRUE(roll.all_ended());
  EXPECT_EQ(roll.exit_code(), 7) << "mpirun has killed the other one";
  RankRoll elsewhere(true);
  elsewhere.add(0, 0);
  elsewhere.count({-1, exits(9), ""}, true);
  EXPECT_EQ(elsewhere.exit_code(), 9);
}

TEST(RankRollTest, WhatALostHostTakesWithIt) {
  RankRoll roll(false);
  roll.add(0, 0);
  roll.add(1, 1);
  roll.count({0, 0, ""}, true);
  EXPECT_FALSE(roll.all_ended());
  roll.lose(1);
  EXPECT_TRUE(roll.all_ended());
}

}  // namespace
}  // namespace ronde::launcher
