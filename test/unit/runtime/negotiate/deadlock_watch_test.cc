// SPDX-License-Identifier: Apache-2.0
// When reports of ranks that stand still are a deadlock, when they are not, and the text.
#include "runtime/negotiate/deadlock_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace ronde::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

StandingAnnouncement waits_for(const std::string& name, std::uint64_t moves = 1,
                               std::uint64_t batches = 5) {
  return {true, moves, batches, {{"'" + name + "'", name + ".cc:1"}}, 0};
}

// Two ranks that stand still since 10 s, and a grace of 5 s.
DeadlockWatch two_that_stand() {
  DeadlockWatch watch(2, seconds(5));
  watch.on_standing(0, waits_for("a"), seconds(10));
  watch.on_standing(1, waits_for("b"), milliseconds(10'100));
  return watch;
}

void both_report(DeadlockWatch& watch, base::Instant now) {
  watch.on_standing(0, waits_for("a"), now);
  watch.on_standing(1, waits_for("b"), now);
}

TEST(DeadlockWatch, IsToldOnceAndFailsAfterTheGrace) {
  DeadlockWatch watch = two_that_stand();
  EXPECT_TRUE(watch.may_be());
  const auto told = watch.judge(5, false, milliseconds(10'100));
  ASSERT_TRUE(told.has_value());
  EXPECT_FALSE(told->fails);
  EXPECT_EQ(told->text,
            "deadlock: all ranks stand still, and nothing that they wait for can become complete: "
            "rank 0 waits for 'a' (a.cc:1), rank 1 waits for 'b' (b.cc:1)");
  EXPECT_EQ(watch.next(), milliseconds(15'100));
  for (int second = 11; second <= 15; ++second) {
    both_report(watch, seconds(second));
    EXPECT_FALSE(watch.judge(5, false, seconds(second)).has_value()) << second;
  }
  const auto failed = watch.judge(5, false, milliseconds(15'100));
  ASSERT_TRUE(failed.has_value());
  EXPECT_TRUE(failed->fails);
  EXPECT_EQ(failed->text, told->text);
}

TEST(DeadlockWatch, AMessageOnItsWayToAnotherHostMayStillBeTheEnd) {
  DeadlockWatch watch = two_that_stand();
  StandingAnnouncement sender = waits_for("a");
  sender.frames_sent = 3;
  StandingAnnouncement receiver = waits_for("b");
  receiver.frames_taken = 2;
  watch.on_standing(0, sender, seconds(11));
  watch.on_standing(1, receiver, seconds(11));
  EXPECT_FALSE(watch.judge(5, false, seconds(11)).has_value());
  receiver.frames_taken = 3;
  watch.on_standing(1, receiver, seconds(12));
  EXPECT_TRUE(watch.judge(5, false, seconds(12)).has_value());
}

TEST(DeadlockWatch, OneRankThatDoesNotStandIsEnoughForNone) {
  DeadlockWatch watch(3, seconds(0));
  watch.on_standing(0, waits_for("a"), seconds(1));
  watch.on_standing(1, waits_for("b"), seconds(1));
  EXPECT_FALSE(watch.may_be());
  EXPECT_FALSE(watch.judge(5, false, seconds(1)).has_value());
  watch.on_standing(2, waits_for("b"), seconds(1));
  watch.on_standing(0, StandingAnnouncement{}, seconds(1));
  EXPECT_FALSE(watch.judge(5, false, seconds(1)).has_value());
  EXPECT_EQ(watch.next(), base::kNever);
}

TEST(DeadlockWatch, ReportsThatAreOldOrOfEarlierBatchesAreNone) {
  EXPECT_FALSE(two_that_stand().judge(6, false, milliseconds(10'100)).has_value())
      << "a batch is on its way to the ranks";
  EXPECT_FALSE(two_that_stand().judge(5, true, milliseconds(10'100)).has_value())
      << "something is ready";
  EXPECT_FALSE(two_that_stand().judge(5, false, seconds(13)).has_value())
      << "rank 0 has not said so for 3 s";
}

TEST(DeadlockWatch, ABatchOfAProcessSetThatNotAllHaveReceivedMakesItNone) {
  DeadlockWatch watch(3, seconds(5));
  StandingAnnouncement one = waits_for("a");
  StandingAnnouncement other = waits_for("b");
  one.sets = {{1, 7}, {2, 3}};
  other.sets = {{2, 4}};
  watch.on_standing(0, one, seconds(10));
  watch.on_standing(1, other, seconds(10));
  watch.on_standing(2, waits_for("c"), seconds(10));
  EXPECT_FALSE(watch.judge(5, false, seconds(10)).has_value());
  one.sets = {{1, 7}, {2, 4}};
  watch.on_standing(0, one, seconds(11));
  EXPECT_TRUE(watch.judge(5, false, seconds(11)).has_value());
  EXPECT_EQ(watch.next(), seconds(16)) << "rank 0 has received something meanwhile";
}

TEST(DeadlockWatch, WhoHasDoneSomethingGetsTheWholeGrace) {
  DeadlockWatch watch = two_that_stand();
  EXPECT_TRUE(watch.judge(5, false, milliseconds(10'100)).has_value());
  for (int second = 11; second <= 18; ++second) {
    watch.on_standing(0, waits_for("a", second < 14 ? 1 : 2), seconds(second));
    watch.on_standing(1, waits_for("b"), seconds(second));
    EXPECT_FALSE(watch.judge(5, false, seconds(second)).has_value()) << second;
  }
  both_report(watch, seconds(19));
  watch.on_standing(0, waits_for("a", 2), seconds(19));
  EXPECT_EQ(watch.next(), seconds(24)) << "rank 0 has reported two different things at 19 s";
}

TEST(DeadlockWatch, AfterItIsOverTheNextOneIsToldAgain) {
  DeadlockWatch watch = two_that_stand();
  EXPECT_TRUE(watch.judge(5, false, milliseconds(10'100)).has_value());
  watch.on_standing(1, StandingAnnouncement{}, seconds(11));
  EXPECT_FALSE(watch.judge(5, false, seconds(11)).has_value());
  EXPECT_FALSE(watch.may_be());
  both_report(watch, seconds(12));
  const auto told = watch.judge(5, false, seconds(12));
  ASSERT_TRUE(told.has_value());
  EXPECT_FALSE(told->fails);
}

TEST(DeadlockWatch, RanksThatWaitForTheSameAreNamedTogether) {
  DeadlockWatch watch(4, seconds(5));
  for (const std::int32_t rank : {0, 1, 3}) {
    watch.on_standing(rank, {true, 1, 0, {{"'a'", ""}, {"'b'", "x.py:2"}}, 3}, seconds(1));
  }
  watch.on_standing(2, {true, 1, 0, {}, 0}, seconds(1));
  const auto told = watch.judge(0, false, seconds(1));
  ASSERT_TRUE(told.has_value());
  EXPECT_THAT(told->text,
              HasSubstr("complete: ranks 0-1, 3 wait for 'a', 'b' (x.py:2) and 3 more, rank 2 "
                        "waits for what is not among the tensors of all ranks"));
}

TEST(DeadlockWatch, ALongGraceDoesNotOverflow) {
  DeadlockWatch watch(1, base::kNever);
  watch.on_standing(0, waits_for("a"), seconds(1));
  EXPECT_TRUE(watch.judge(5, false, seconds(1)).has_value());
  EXPECT_EQ(watch.next(), base::kNever);
}

}  // namespace
}  // namespace ronde::runtime
