// SPDX-License-Identifier: Apache-2.0
// Tensors whose steps have numbers: what differs fails on every rank, in the step in which it does,
// and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "runtime/negotiate/negotiator.h"
#include "test/unit/runtime/negotiate/negotiator_fixture.h"

namespace ronde::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StepNumber agreed(std::int64_t number) { return StepNumber::agreed(number); }
StepNumber counted(std::int64_t number) { return StepNumber::counted(number); }

// The errors that were decided; follows the plan.
std::vector<ErrorDecision> errors_of(Job& job) {
  std::vector<ErrorDecision> errors;
  for (const Decision& decision : job.decisions()) {
    if (const auto* error = std::get_if<ErrorDecision>(&decision)) errors.push_back(*error);
  }
  return errors;
}

void expect_differ(Job& job, const std::string& words) {
  const auto errors = errors_of(job);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors.front().name, "w");
  EXPECT_EQ(errors.front().code, base::Code::kMismatch);
  EXPECT_THAT(errors.front().text, HasSubstr(words));
  EXPECT_FALSE(job.negotiator.has_ready()) << "nothing of it is averaged";
}

TEST(NegotiatorSteps, EqualNumbersMoveNothingMore) {
  Job job(2, 4);
  job.bind("w");
  for (int step = 1; step < 4; ++step) {
    EXPECT_TRUE(job.arrive(0, "w", agreed(step)));
    EXPECT_TRUE(job.arrive(1, "w", agreed(step)));
    EXPECT_THAT(job.decisions(), IsEmpty());
    EXPECT_THAT(job.batch(), ElementsAre("w"));
  }
}

TEST(NegotiatorSteps, AStepThatWasLeftOutFailsAtOnceAndTheNextOnesDoNot) {
  Job job(2, 4);
  job.bind("w");
  EXPECT_TRUE(job.arrive(0, "w", agreed(3)));
  EXPECT_TRUE(job.arrive(1, "w", agreed(4)));
  expect_differ(job, "rank 0 is in step 3, rank 1 is in step 4: rank 1 has left one out");
  // The plan has no such tensor any more, so both describe it once.
  EXPECT_FALSE(job.arrive(0, "w", agreed(4)));
  for (const std::int32_t rank : {0, 1}) job.request(rank, "w", plain(), agreed(5));
  EXPECT_THAT(errors_of(job), IsEmpty());
  EXPECT_THAT(job.batch(), ElementsAre("w"));
  EXPECT_TRUE(job.arrive(0, "w", agreed(6)));
  EXPECT_TRUE(job.arrive(1, "w", agreed(6)));
  EXPECT_THAT(job.batch(), ElementsAre("w"));
}

TEST(NegotiatorSteps, FullRequestsAreCompared) {
  Job job(2, 4);
  job.request(0, "w", plain(), agreed(0));
  job.request(1, "w", plain(), agreed(1));
  expect_differ(job, "rank 0 is in step 0, rank 1 is in step 1");
}

TEST(NegotiatorSteps, AFullRequestIsComparedWithWhatArrived) {
  for (const std::int32_t first : {0, 1}) {
    Job job(2, 4);
    job.bind("w");
    EXPECT_TRUE(job.arrive(first, "w", agreed(7)));
    job.request(1 - first, "w", plain(), agreed(8));
    expect_differ(job, "rank " + std::to_string(1 - first) + " has left one out");
  }
}

TEST(NegotiatorSteps, ARankWithoutANumberDiffers) {
  Job job(2, 4);
  job.bind("w");
  EXPECT_TRUE(job.arrive(0, "w", agreed(3)));
  EXPECT_TRUE(job.arrive(1, "w", counted(3)));
  expect_differ(job, "rank 1 gives its step no number, rank 0 is in step 3");
}

TEST(NegotiatorSteps, WhatIsOnlyCountedIsNotCompared) {
  Job job(2, 4);
  job.bind("w");
  EXPECT_TRUE(job.arrive(0, "w", counted(3)));
  EXPECT_TRUE(job.arrive(1, "w", counted(2)));
  EXPECT_THAT(errors_of(job), IsEmpty());
  EXPECT_THAT(job.batch(), ElementsAre("w"));
}

// Whichever comes first, the end of rank 1 or the arrival of rank 0.
TEST(NegotiatorSteps, ACountTellsWhyATensorCannotComplete) {
  for (const bool closes_first : {false, true}) {
    Job job(2, 4);
    job.bind("w");
    std::vector<ErrorDecision> errors;
    if (closes_first) {
      job.negotiator.on_closing(1, {false, counted(9)});
      (void)job.decisions();
      job.request(0, "w", plain(), counted(10));
      errors = errors_of(job);
    } else {
      EXPECT_TRUE(job.arrive(0, "w", counted(10)));
      job.negotiator.on_closing(1, {false, counted(9)});
      errors = errors_of(job);
    }
    ASSERT_EQ(errors.size(), 1U);
    EXPECT_EQ(errors.front().code, base::Code::kClosed);
    EXPECT_THAT(errors.front().text,
                HasSubstr(": rank 1 has taken 9 steps, rank 0 is in its 10th: one was left out"));
  }
}

// Another averager of rank 1 has taken more steps than this one, and has left none out.
TEST(NegotiatorSteps, CountsAreThoseOfTheTensor) {
  Job job(2, 4);
  job.bind("w");
  EXPECT_TRUE(job.arrive(1, "w", counted(9)));
  EXPECT_TRUE(job.arrive(0, "w", counted(9)));
  EXPECT_THAT(job.batch(), ElementsAre("w"));
  EXPECT_TRUE(job.arrive(0, "w", counted(10)));
  const auto waiting = job.negotiator.waiting_for("w");
  ASSERT_TRUE(waiting.has_value());
  EXPECT_EQ(waiting->steps, "rank 1 has taken 9 steps, rank 0 is in its 10th");
  job.negotiator.on_closing(1, {false, counted(20)});
  const auto errors = errors_of(job);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_THAT(errors.front().text, HasSubstr(": rank 1 has taken 9 steps, rank 0 is in its 10th"));
}

TEST(NegotiatorSteps, EqualCountsClaimNothing) {
  Job job(2, 4);
  job.bind("w");
  EXPECT_TRUE(job.arrive(0, "w", counted(10)));
  job.negotiator.on_closing(1, {false, counted(10)});
  const auto errors = errors_of(job);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_THAT(errors.front().text, ::testing::Not(HasSubstr("left out")));
}

TEST(StepNumber, IsAWord) {
  EXPECT_FALSE(StepNumber().exists());
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{7}, std::int64_t{1} << 62}) {
    EXPECT_EQ(StepNumber::of_word(agreed(number).word()), agreed(number));
    EXPECT_EQ(agreed(number).number(), number);
    EXPECT_EQ(counted(number).number(), number);
    EXPECT_TRUE(agreed(number).must_agree());
    EXPECT_FALSE(counted(number).must_agree());
    EXPECT_TRUE(counted(number).exists());
  }
}

TEST(StepSpan, KnowsTheLowestAndTheHighestWhateverTheOrder) {
  StepSpan one;
  one.add(3, agreed(5));
  EXPECT_TRUE(one.agrees());
  StepSpan other;
  other.add(1, agreed(4));
  other.add(2, agreed(6));
  EXPECT_FALSE(other.agrees());
  StepSpan all = one;
  all.add(other);
  EXPECT_EQ(all, other);
  other.add(one);
  EXPECT_EQ(all, other);
  EXPECT_EQ(all.low.rank, 1);
  EXPECT_EQ(all.high.rank, 2);
}

TEST(StepsLeftOut, HasTheWordsOfSmallNumbers) {
  EXPECT_EQ(steps_behind(2, counted(1), 0, counted(2)),
            "rank 2 has taken 1 step, rank 0 is in its 2nd");
  EXPECT_THAT(steps_behind(2, counted(20), 0, counted(21)), HasSubstr("its 21st"));
  EXPECT_THAT(steps_behind(2, counted(10), 0, counted(11)), HasSubstr("its 11th"));
  EXPECT_EQ(steps_behind(2, StepNumber(), 0, counted(2)), "");
  EXPECT_EQ(steps_behind(1, agreed(8), 0, agreed(9)),
            "rank 1 was last in step 8, rank 0 is in step 9");
  EXPECT_EQ(steps_behind(1, counted(8), 0, agreed(9)), "");
}

}  // namespace
}  // namespace ronde::runtime
