// SPDX-License-Identifier: Apache-2.0
// Optimisers against the formulae of their headers in double precision, over several steps.
#include "bindings/trainer/optim/update_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <ronde/ronde.hpp>
#include <string>
#include <utility>
#include <vector>

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
constexpr int kSteps = 6;

// An element of a parameter, with its moments, in double precision.
struct Element {
  double value = 0.0;
  double moment1 = 0.0;
  double moment2 = 0.0;
};
using Reference = std::function<void(Element&, double gradient, double rate, int step)>;

float drawn(std::uint64_t stream) { return Generator(7, stream).uniform(-1.0F, 1.0F); }

// Takes some steps with changing rates, and compares every value after each.
void expect_follows(const RuleOptions& options, const Reference& reference) {
  Parameter first("first", {kSize});
  Parameter second("second", {2, 3});
  const std::vector<Parameter*> parameters{&first, &second};
  UpdateRule optimizer(options, parameters);
  std::vector<std::vector<Element>> expected;
  std::uint64_t stream = 0;
  for (const Parameter* const parameter : parameters) {
    for (float& value : parameter->value()) value = drawn(++stream);
    auto& elements = expected.emplace_back();
    for (const float value : parameter->value()) elements.push_back({value});
  }
  for (int step = 1; step <= kSteps; ++step) {
    const double rate = 0.1 / step;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      for (std::size_t i = 0; i < parameters[p]->size(); ++i) {
        const float gradient = drawn(++stream);
        parameters[p]->gradient()[i] = gradient;
        reference(expected[p][i], gradient, rate, step);
      }
    }
    optimizer.step(rate);
    EXPECT_EQ(optimizer.steps(), static_cast<std::uint64_t>(step));
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      for (std::size_t i = 0; i < parameters[p]->size(); ++i) {
        ASSERT_NEAR(parameters[p]->value()[i], expected[p][i].value, 2e-6)
            << parameters[p]->name() << " value " << i << " after step " << step;
      }
    }
  }
}

TEST(Sgd, SubtractsTheGradient) {
  expect_follows({.kind = Kind::kSgd},
                 [](Element& e, double gradient, double rate, int) { e.value -= rate * gradient; });
}

TEST(Sgd, WithMomentumAndDecay) {
  expect_follows({.kind = Kind::kSgd, .momentum = 0.9, .weight_decay = 0.3},
                 [](Element& e, double gradient, double rate, int) {
                   e.moment1 = 0.9 * e.moment1 + gradient + 0.3 * e.value;
                   e.value -= rate * e.moment1;
                 });
}

TEST(Sgd, DecaysWithoutMomentum) {
  expect_follows({.kind = Kind::kSgd, .weight_decay = 0.3},
                 [](Element& e, double gradient, double rate, int) {
                   e.value -= rate * (gradient + 0.3 * e.value);
                 });
}

TEST(Sgd, NesterovLooksAhead) {
  expect_follows({.kind = Kind::kSgd, .momentum = 0.8, .nesterov = true, .weight_decay = 0.1},
                 [](Element& e, double gradient, double rate, int) {
                   const double g = gradient + 0.1 * e.value;
                   e.moment1 = 0.8 * e.moment1 + g;
                   e.value -= rate * (g + 0.8 * e.moment1);
                 });
}

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

void adam(Element& e, double gradient, double rate, int step) {
  e.moment1 = 0.9 * e.moment1 + 0.1 * gradient;
  e.moment2 = 0.999 * e.moment2 + 0.001 * gradient * gradient;
  const double mean = e.moment1 / (1.0 - std::pow(0.9, step));
  const double square = e.moment2 / (1.0 - std::pow(0.999, step));
  e.value -= rate * mean / (std::sqrt(square) + 1e-8);
}

TEST(Adam, CorrectsTheMomentsForTheirStart) { expect_follows({.kind = Kind::kAdam}, adam); }

TEST(Adam, DecayIsAPartOfTheGradient) {
  expect_follows({.kind = Kind::kAdam, .weight_decay = 0.2},
                 [](Element& e, double gradient, double rate, int step) {
                   adam(e, gradient + 0.2 * e.value, rate, step);
                 });
}

TEST(Adam, OtherBetasAndEpsilon) {
  expect_follows({.kind = Kind::kAdam, .beta1 = 0.5, .beta2 = 0.9, .epsilon = 0.1},
                 [](Element& e, double gradient, double rate, int step) {
                   e.moment1 = 0.5 * e.moment1 + 0.5 * gradient;
                   e.moment2 = 0.9 * e.moment2 + 0.1 * gradient * gradient;
                   const double mean = e.moment1 / (1.0 - std::pow(0.5, step));
                   const double square = e.moment2 / (1.0 - std::pow(0.9, step));
                   e.value -= rate * mean / (std::sqrt(square) + 0.1);
                 });
}

TEST(AdamW, DecaysBesideTheGradient) {
  expect_follows({.kind = Kind::kAdamW, .weight_decay = 0.2},
                 [](Element& e, double gradient, double rate, int step) {
                   e.value *= 1.0 - rate * 0.2;
                   adam(e, gradient, rate, step);
                 });
}

TEST(AdamW, DecaysByOneHundredthUnlessTold) {
  expect_follows({.kind = Kind::kAdamW}, [](Element& e, double gradient, double rate, int step) {
    e.value *= 1.0 - rate * 0.01;
    adam(e, gradient, rate, step);
  });
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
