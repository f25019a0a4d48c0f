// SPDX-License-Identifier: Apache-2.0
// What schedules say and refuse; their rates are compared with PyTorch's (test/python/core).
#include "bindings/trainer/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {
namespace {

using ScheduleKind = ScheduleOptions::Kind;

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
