// SPDX-License-Identifier: Apache-2.0
// What an update rule keeps, says and refuses; its steps are compared with PyTorch's
// (test/python/core).
#include "bindings/trainer/optim/update_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ronde/ronde.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/nn/batch_norm.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/random.h"
#include "bindings/trainer/tensor/tape.h"
#include "test/unit/trainer/local_ranks.h"

namespace ronde::trainer {
namespace {

using Kind = RuleOptions::Kind;

constexpr std::size_t kSize = 19;  // no multiple of a vector

float drawn(std::uint64_t stream) { return Generator(7, stream).uniform(-1.0F, 1.0F); }

// The sequence is exact in binary: velocity 1, 1.5, 0.75, -0.625.
TEST(Sgd, WithMomentumFollowsTheSequenceComputedByHand) {
  Parameter weight("fc/weight", {1, 1});
  weight.value()[0] = 1.0F;
  UpdateRule sgd({.momentum = 0.5}, {&weight});
  const std::vector<std::pair<float, float>> steps{
      {1.0F, 0.5F}, {1.0F, -0.25F}, {0.0F, -0.625F}, {-1.0F, -0.3125F}};
  for (const auto& [gradient, value] : steps) {
    weight.gradient()[0] = gradient;
    sgd.step(0.5);
    EXPECT_EQ(weight.value()[0], value);
  }
  ASSERT_EQ(sgd.state().size(), 1U);
  EXPECT_EQ(sgd.state()[0].values[0], -0.625F);
}

TEST(UpdateRule, SaysThatItHasChangedAParameter) {
  Parameter weight("w", {1});
  const std::uint64_t before = weight.version();
  UpdateRule({}, {&weight}).step(0.1);
  EXPECT_GT(weight.version(), before);
}

// What oneDNN makes only once is made by one thread: the thread sanitizer does not see how two wait
// for each other there.
void run_batch_norm_once() {
  BatchNorm norm("norm", 2);
  Tape tape;
  tape.begin();
  const Tensor x = tape.constant({2, 2}, std::array{1.F, 2.F, 3.F, 5.F});
  tape.backward(mean_squared_error(norm(x), std::array{1.F, 0.F, 0.F, 1.F}, 4).value);
}

TEST(UpdateRule, AStepThatIsRefusedLeavesTheStatisticsOfAllRanks) {
  run_batch_norm_once();
  run_ranks(2, [](const LocalJob& job, int rank) {
    JobRank strategy(job, rank);
    BatchNorm norm("norm", 2);
    Model model(norm);
    Optimizer optimizer(model, {});
    Tape& tape = strategy.here().tape();
    // What a step with this number among the samples of rank 1 leaves.
    const auto step = [&](float number) {
      tape.begin();
      const Tensor x = tape.constant({2, 2}, std::array{1.F, 2.F, 3.F, rank == 1 ? number : 5.F});
      optimizer.backward(tape, mean_squared_error(norm(x), std::array{1.F, 0.F, 0.F, 1.F}, 4));
      try {
        optimizer.step();
      } catch (const NotFinite&) {
      }
      std::vector<float> all;
      for (const StateTensor& one : norm.statistics()) {
        all.insert(all.end(), one.values.begin(), one.values.end());
      }
      return all;
    };
    const std::vector<float> good = step(4.0F);
    EXPECT_NE(good, (std::vector<float>{0, 0, 1, 1}));
    EXPECT_EQ(step(std::numeric_limits<float>::quiet_NaN()), good) << "rank " << rank;
    EXPECT_NE(step(4.0F), good);
  });
}

std::vector<std::string> names_of(const std::vector<StateTensor>& tensors) {
  std::vector<std::string> names;
  for (const StateTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

TEST(UpdateRule, StateIsNamedAfterTheParameters) {
  Parameter weight("fc1/weight", {2, 3});
  Parameter bias("fc1/bias", {3});
  EXPECT_TRUE(UpdateRule({}, {&weight, &bias}).state().empty());
  UpdateRule sgd({.momentum = 0.5}, {&weight, &bias});
  EXPECT_THAT(names_of(sgd.state()),
              testing::ElementsAre("velocity/fc1/weight", "velocity/fc1/bias"));
  EXPECT_EQ(sgd.state()[0].shape, weight.shape());
  EXPECT_EQ(sgd.state()[0].values.size(), 6U);
  UpdateRule adam({.kind = Kind::kAdamW}, {&weight, &bias});
  EXPECT_THAT(names_of(adam.state()),
              testing::ElementsAre("moment1/fc1/weight", "moment1/fc1/bias", "moment2/fc1/weight",
                                   "moment2/fc1/bias"));
}

// What a checkpoint does: another optimiser goes on where the first has stopped.
TEST(UpdateRule, GoesOnFromItsState) {
  Parameter whole("p", {kSize});
  Parameter part("p", {kSize});
  UpdateRule through({.kind = Kind::kAdam}, {&whole});
  for (float& gradient : whole.gradient()) gradient = 0.25F;
  through.step(0.1);
  UpdateRule after({.kind = Kind::kAdam}, {&part});
  std::ranges::copy(whole.value(), part.value().begin());
  for (std::size_t i = 0; i < through.state().size(); ++i) {
    std::ranges::copy(through.state()[i].values, after.state()[i].values.begin());
  }
  after.set_steps(through.steps());
  for (std::size_t i = 0; i < kSize; ++i) {
    whole.gradient()[i] = part.gradient()[i] = drawn(i);
  }
  through.step(0.1);
  after.step(0.1);
  for (std::size_t i = 0; i < kSize; ++i) EXPECT_EQ(whole.value()[i], part.value()[i]);
}

std::string refusal(const RuleOptions& options) {
  try {
    static_cast<void>(UpdateRule(options, {}));
  } catch (const TrainerError& error) {
    return error.what();
  }
  return "";
}

TEST(UpdateRule, RefusesOptionsThatMakeNoSense) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  using testing::HasSubstr;
  EXPECT_THAT(refusal({.momentum = 1.0}), HasSubstr("momentum is 1: use one from 0 to below 1"));
  EXPECT_THAT(refusal({.momentum = kNan}), HasSubstr("momentum is nan"));
  EXPECT_THAT(refusal({.nesterov = true}), HasSubstr("needs momentum"));
  EXPECT_THAT(refusal({.weight_decay = -0.5}), HasSubstr("weight decay is -0.5"));
  EXPECT_THAT(refusal({.kind = Kind::kAdam, .beta1 = 1.0}), HasSubstr("beta1 is 1"));
  EXPECT_THAT(refusal({.kind = Kind::kAdamW, .beta2 = -0.1}), HasSubstr("beta2 is -0.1"));
  EXPECT_THAT(refusal({.kind = Kind::kAdam, .epsilon = 0.0}), HasSubstr("epsilon is 0"));
  EXPECT_EQ(refusal({.kind = Kind::kAdam}), "");
}

TEST(UpdateRule, ItsSettingsTellWhateverMakesAnotherTraining) {
  const std::vector<RuleOptions> all = {{},
                                        {.momentum = 0.9},
                                        {.momentum = 0.9000001},
                                        {.momentum = 0.9, .nesterov = true},
                                        {.weight_decay = 0.01},
                                        {.kind = Kind::kAdam},
                                        {.kind = Kind::kAdamW, .weight_decay = 0.0},
                                        {.kind = Kind::kAdam, .beta1 = 0.8},
                                        {.kind = Kind::kAdam, .beta2 = 0.99},
                                        {.kind = Kind::kAdam, .epsilon = 1e-7},
                                        {.kind = Kind::kAdam, .weight_decay = 0.01}};
  std::set<std::string> texts;
  for (const RuleOptions& one : all) texts.insert(UpdateRule(one, {}).settings());
  EXPECT_EQ(texts.size(), all.size());
}

}  // namespace
}  // namespace ronde::trainer
