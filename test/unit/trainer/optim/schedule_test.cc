// SPDX-License-Identifier: Apache-2.0
// Learning rates at the edges of each schedule.
#include "bindings/trainer/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {
namespace {

using ScheduleKind = ScheduleOptions::Kind;

TEST(Schedule, ConstantStays) {
  const ScheduleOptions options{.learning_rate = 0.3};
  for (const std::uint64_t step : {0ULL, 1ULL, 1000000000000ULL}) {
    EXPECT_EQ(learning_rate(options, step), 0.3);
  }
}

TEST(Schedule, WarmUpRisesToAllOfTheRateInItsLastStep) {
  for (const ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kStep,
                                  ScheduleKind::kCosine, ScheduleKind::kLinear}) {
    const ScheduleOptions options{
        .kind = kind, .learning_rate = 0.8, .warmup = 4, .every = 3, .total = 20};
    EXPECT_DOUBLE_EQ(learning_rate(options, 0), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(options, 1), 0.4);
    EXPECT_DOUBLE_EQ(learning_rate(options, 2), 0.6);
    EXPECT_DOUBLE_EQ(learning_rate(options, 3), 0.8);
    EXPECT_DOUBLE_EQ(learning_rate(options, 4), 0.8);
  }
}

TEST(Schedule, StepMultipliesEveryFewSteps) {
  const ScheduleOptions options{
      .kind = ScheduleKind::kStep, .learning_rate = 1.0, .warmup = 2, .every = 3, .factor = 0.5};
  EXPECT_EQ(learning_rate(options, 2), 1.0);
  EXPECT_EQ(learning_rate(options, 4), 1.0);
  EXPECT_EQ(learning_rate(options, 5), 0.5);
  EXPECT_EQ(learning_rate(options, 7), 0.5);
  EXPECT_EQ(learning_rate(options, 8), 0.25);
}

TEST(Schedule, CosineEndsAtZero) {
  const ScheduleOptions options{
      .kind = ScheduleKind::kCosine, .learning_rate = 2.0, .warmup = 10, .total = 110};
  EXPECT_DOUBLE_EQ(learning_rate(options, 10), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 35), 1.0 + std::numbers::sqrt2 / 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 60), 1.0);
  EXPECT_GT(learning_rate(options, 109), 0.0);
  EXPECT_LT(learning_rate(options, 109), 0.001);
  EXPECT_EQ(learning_rate(options, 110), 0.0);
  EXPECT_EQ(learning_rate(options, 1000), 0.0);
}

TEST(Schedule, LinearEndsAtZero) {
  const ScheduleOptions options{.kind = ScheduleKind::kLinear, .learning_rate = 2.0, .total = 4};
  EXPECT_EQ(learning_rate(options, 0), 2.0);
  EXPECT_EQ(learning_rate(options, 1), 1.5);
  EXPECT_EQ(learning_rate(options, 3), 0.5);
  EXPECT_EQ(learning_rate(options, 4), 0.0);
  EXPECT_EQ(learning_rate(options, 5), 0.0);
}

std::string schedule_refusal(const ScheduleOptions& options) {
  try {
    static_cast<void>(learning_rate(options, 0));
  } catch (const TrainerError& error) {
    return error.what();
  }
  return "";
}

TEST(Schedule, RefusesOptionsThatMakeNoSense) {
  using testing::HasSubstr;
  EXPECT_THAT(schedule_refusal({.learning_rate = -1.0}), HasSubstr("learning rate is -1"));
  EXPECT_THAT(schedule_refusal({.learning_rate = std::numeric_limits<double>::infinity()}),
              HasSubstr("learning rate is inf"));
  EXPECT_THAT(schedule_refusal({.learning_rate = std::nan("")}), HasSubstr("learning rate is nan"));
  EXPECT_THAT(schedule_refusal({.kind = ScheduleKind::kStep}), HasSubstr("use at least 1"));
  EXPECT_THAT(schedule_refusal({.kind = ScheduleKind::kStep, .every = 1, .factor = 0.0}),
              HasSubstr("factor is 0"));
  EXPECT_THAT(schedule_refusal({.kind = ScheduleKind::kCosine}), HasSubstr("total of steps is 0"));
  EXPECT_THAT(schedule_refusal({.kind = ScheduleKind::kLinear, .warmup = 5, .total = 5}),
              HasSubstr("total of steps is 5: use more than the 5 of the warm-up"));
}

TEST(ScheduleText, TellsWhateverMakesAnotherRate) {
  using Options = ScheduleOptions;
  const std::vector<Options> all = {
      {.learning_rate = 0.1},
      {.learning_rate = 0.1000000001},
      {.learning_rate = 0.1, .warmup = 3},
      {.kind = ScheduleKind::kStep, .learning_rate = 0.1, .every = 5, .factor = 0.5},
      {.kind = ScheduleKind::kStep, .learning_rate = 0.1, .every = 6, .factor = 0.5},
      {.kind = ScheduleKind::kStep, .learning_rate = 0.1, .every = 5, .factor = 0.25},
      {.kind = ScheduleKind::kCosine, .learning_rate = 0.1, .total = 100},
      {.kind = ScheduleKind::kCosine, .learning_rate = 0.1, .total = 200},
      {.kind = ScheduleKind::kLinear, .learning_rate = 0.1, .total = 100}};
  std::set<std::string> texts;
  for (const Options& one : all) texts.insert(text_of(one));
  EXPECT_EQ(texts.size(), all.size());
  EXPECT_EQ(text_of(Options{.learning_rate = 0.05, .total = 100}), "learning rate 0.05")
      << "what a constant rate does not ask for makes no difference";
}

TEST(Schedule, ATableOfRatesByGlobalBatch) {
  const std::map<std::size_t, double> rates{{64, 0.01}, {128, 0.02}};
  EXPECT_EQ(learning_rate_for(128, rates), 0.02);
  try {
    static_cast<void>(learning_rate_for(96, rates));
    FAIL() << "a batch that the table does not have was taken";
  } catch (const TrainerError& error) {
    EXPECT_STREQ(error.what(),
                 "there is no learning rate for a global batch of 96: add it to the table, which "
                 "has 64, 128");
    EXPECT_EQ(error.exit_code(), kExitConfiguration);
  }
}

}  // namespace
}  // namespace ronde::trainer
