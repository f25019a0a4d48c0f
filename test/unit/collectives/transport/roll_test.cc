// SPDX-License-Identifier: Apache-2.0
#include "collectives/transport/roll.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronde::collectives {
namespace {

constexpr base::Instant kThen{1000};

bool says(const base::Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

TEST(Roll, KnowsWhoWasHeardOfInThisStage) {
  Roll roll(4);
  roll.begin_round("joining");
  roll.record(0, "a", 2, kThen);
  roll.record(3, "b", 2, kThen + base::Nanoseconds(5));
  EXPECT_EQ(roll.missing({}), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(roll.missing(kThen + base::Nanoseconds(1)), (std::vector<std::int32_t>{0, 1, 2}));
  roll.begin_round("greeting");
  EXPECT_EQ(roll.missing({}).size(), 4U);
}

TEST(Roll, TellsWhatAMissingRankDidLast) {
  Roll roll(2);
  roll.begin_round("joining");
  EXPECT_TRUE(says(roll.absent({1}), "took no part in joining in time; nothing was received"));
  roll.begin_round("greeting");
  const base::Status status = roll.absent({1});
  EXPECT_TRUE(says(status, "rank 1 (host unknown) took no part in greeting in time"));
  EXPECT_TRUE(says(status, "its last step was joining"));
  EXPECT_EQ(status.rank(), 1);
}

TEST(Roll, InfersTheHostOfARankThatWasNeverHeardOf) {
  Roll roll(4);
  roll.begin_round("joining");
  roll.record(0, "a", 2, kThen);
  EXPECT_TRUE(says(roll.absent({3}), "host unknown"));  // host b, or the second place on a
  roll.record(1, "a", 2, kThen);
  roll.record(2, "b", 2, kThen);
  EXPECT_TRUE(says(roll.absent({3}), "rank 3 (host b)"));
  Roll alone(3);
  alone.begin_round("joining");
  alone.record(1, "a", 3, kThen);
  EXPECT_TRUE(says(alone.absent({0}), "rank 0 (host a)"));
  alone.set_hosts({"x", "y", "z"});
  EXPECT_TRUE(says(alone.absent({0, 2}), "rank 0 (host x), rank 2 (host z) took"));
}

TEST(Roll, TheCauseIsNotTheRankThatBlamesAnother) {
  EXPECT_EQ(root_cause({}), nullptr);
  // Rank 0 misses rank 2, which is the leader of rank 3 and has lost it.
  const std::vector<StartTrouble> troubles{
      {0, 2, "host 1 did not connect"}, {1, -1, ""}, {2, 3, "rank 3 has ended"}};
  ASSERT_NE(root_cause(troubles), nullptr);
  EXPECT_EQ(root_cause(troubles)->culprit, 3);
  // Each blames the other.
  const std::vector<StartTrouble> circle{{0, 1, "no child"}, {1, 0, "no parent"}};
  EXPECT_EQ(root_cause(circle), circle.data());
  // A rank may blame itself.
  const std::vector<StartTrouble> own{{0, 1, "no child"}, {1, 1, "no interface"}};
  EXPECT_EQ(root_cause(own)->status().rank(), 1);
}

}  // namespace
}  // namespace ronde::collectives
