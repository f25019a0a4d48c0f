// SPDX-License-Identifier: Apache-2.0
// When an entry's submitter counts as one that waits at once, and how soon that is forgotten.
#include "runtime/tensors/waiting_habit.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ronde::runtime {
namespace {

using std::chrono::microseconds;

constexpr base::Nanoseconds kShort = WaitingHabit::kAtOnce;
constexpr base::Nanoseconds kLong = std::chrono::milliseconds(3);

void use(WaitingHabit& habit, base::Nanoseconds gap, int times = 1) {
  for (int i = 0; i < times; ++i) habit.waited(habit.submitted(), gap);
}

int uses_until_it_is_learnt(WaitingHabit& habit) {
  int uses = 0;
  for (; !habit.waits_at_once() && uses < 100'000; ++uses) use(habit, kShort);
  return uses;
}

TEST(WaitingHabitTest, AFewUsesThatWaitAtOnceAreLearnt) {
  WaitingHabit habit;
  EXPECT_EQ(uses_until_it_is_learnt(habit), 8);
}

TEST(WaitingHabitTest, OneLateWaitEndsItWhateverCameBefore) {
  WaitingHabit habit;
  use(habit, kShort, 100'000);
  use(habit, microseconds(17));
  EXPECT_FALSE(habit.waits_at_once());
}

TEST(WaitingHabitTest, ALittleLateIsForgivenOnceButNotTwice) {
  WaitingHabit habit;
  use(habit, kShort, 100);
  use(habit, microseconds(10));
  EXPECT_TRUE(habit.waits_at_once());
  use(habit, microseconds(10));
  EXPECT_FALSE(habit.waits_at_once());
}

// What a wrong guess delays at most, right ones have to save first.
TEST(WaitingHabitTest, AWrongGuessCostsAsManyRightOnesAsMakeGoodForIt) {
  WaitingHabit habit;
  use(habit, kShort, 100);
  use(habit, kLong);
  const int uses = uses_until_it_is_learnt(habit);
  EXPECT_GE(uses * WaitingHabit::kSaved, WaitingHabit::kLongestDelay - WaitingHabit::kMost);
  EXPECT_LE(uses, 508);
}

TEST(WaitingHabitTest, AnEntryThatNeverWaitedCanStillLearn) {
  WaitingHabit habit;
  use(habit, kLong, 100'000);
  EXPECT_EQ(uses_until_it_is_learnt(habit), 508);
}

TEST(WaitingHabitTest, AUseWithoutAnyWaitEndsIt) {
  WaitingHabit habit;
  use(habit, kShort, 100);
  ASSERT_TRUE(habit.waits_at_once());
  static_cast<void>(habit.submitted());
  EXPECT_FALSE(habit.waits_at_once());
}

TEST(WaitingHabitTest, AnotherTensorStartsAnew) {
  WaitingHabit habit;
  use(habit, kShort, 100);
  habit.forget();
  EXPECT_FALSE(habit.waits_at_once());
  EXPECT_EQ(uses_until_it_is_learnt(habit), 8);
}

}  // namespace
}  // namespace ronde::runtime
