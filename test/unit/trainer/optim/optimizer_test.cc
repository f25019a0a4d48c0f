// SPDX-License-Identifier: Apache-2.0
// Single steps of the optimiser of a job: what it submits, refuses, clips and broadcasts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <ronde/ronde.hpp>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/optim/update_rule.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/tape.h"
#include "test/unit/trainer/error_of.h"
#include "test/unit/trainer/local_ranks.h"

namespace ronde::trainer {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Two parameters, trained by hand.
struct Pair {
  Parameter a{"a", {3}};
  Parameter b{"b", {2}};
  Tape tape;

  std::vector<Parameter*> parameters() { return {&a, &b}; }
  Tensor operator()(const Tensor& input) { return input * input.tape().use(a); }

  // A loss whose gradients by the elements of `a` and `b` are these; none: it is not used.
  Loss loss(std::vector<float> by_a, std::vector<float> by_b = {}) {
    tape.begin();
    Tensor total = tape.constant({}, std::array<float, 1>{0.0F});
    // The first that is used is the last whose gradient is final.
    if (!by_a.empty()) total = sum(tape.use(a) * tape.constant({3}, by_a)) + total;
    if (!by_b.empty()) total = total + sum(tape.use(b) * tape.constant({2}, by_b));
    Loss loss;
    loss.value = total;
    return loss;
  }
};

// A rank with SGD at a rate of 1, so that values show the gradients.
struct Rank {
  Rank(const LocalJob& job, int rank, OptimizerOptions options = {}) : strategy(job, rank) {
    options.schedule.learning_rate = 1.0;
    make(options);
  }
  void make(const OptimizerOptions& options) {
    optimizer = std::make_unique<Optimizer>(under, options);
  }
  void backward(std::vector<float> by_a, std::vector<float> by_b = {}) {
    optimizer->backward(model.tape, model.loss(std::move(by_a), std::move(by_b)));
  }

  Pair model;
  JobRank strategy;
  Model under{model};
  std::unique_ptr<Optimizer> optimizer;
};

TEST(OptimizerStep, SumsOverTheRanks) {
  run_ranks(3, [](const LocalJob& job, int number) {
    Rank rank(job, number);
    const auto share = static_cast<float>(number);
    rank.backward({share, 1.0F, -1.0F}, {2.0F, share});
    const StepResult result = rank.optimizer->step();
    EXPECT_THAT(rank.model.a.value(), ElementsAre(-3.0F, -3.0F, 3.0F));
    EXPECT_THAT(rank.model.b.value(), ElementsAre(-6.0F, -3.0F));
    EXPECT_EQ(result.learning_rate, 1.0);
    EXPECT_DOUBLE_EQ(result.norm, std::sqrt(9.0 + 9.0 + 9.0 + 36.0 + 9.0));
  });
}

TEST(OptimizerStep, WhatAStepDoesNotUseHasAGradientOfZeros) {
  for (const Gradients where : {Gradients::kPlain, Gradients::kBoard}) {
    run_ranks(2, [where](const LocalJob& job, int number) {
      Rank rank(job, number, {.gradients = where});
      rank.backward({1.0F, 1.0F, 1.0F}, {1.0F, 1.0F});
      rank.optimizer->step();
      EXPECT_THAT(rank.model.b.value(), Each(-2.0F));
      // Rank 0 alone uses b; then no rank does.
      rank.backward({0.0F, 0.0F, 0.0F},
                    number == 0 ? std::vector{0.5F, 0.25F} : std::vector<float>{});
      rank.optimizer->step();
      EXPECT_THAT(rank.model.b.value(), ElementsAre(-2.5F, -2.25F));
      rank.backward({1.0F, 1.0F, 1.0F});
      rank.optimizer->step();
      EXPECT_THAT(rank.model.b.value(), ElementsAre(-2.5F, -2.25F));
      EXPECT_THAT(rank.model.b.gradient(), Each(0.0F));
      EXPECT_THAT(rank.model.a.value(), Each(-4.0F));
    });
  }
}

TEST(OptimizerStep, RankWithoutSamplesTakesPart) {
  run_ranks(2, [](const LocalJob& job, int number) {
    Rank rank(job, number);
    // Once with a loss that depends on nothing, once without a pass.
    for (int step = 0; step < 2; ++step) {
      if (number == 0) {
        rank.backward({1.0F, 2.0F, 3.0F}, {4.0F, 5.0F});
      } else if (step == 0) {
        rank.optimizer->backward(rank.model.tape, Loss{});
      }
      rank.optimizer->step();
    }
    EXPECT_THAT(rank.model.a.value(), ElementsAre(-2.0F, -4.0F, -6.0F));
    EXPECT_THAT(rank.model.b.value(), ElementsAre(-8.0F, -10.0F));
  });
}

TEST(OptimizerStep, LossWithSamplesMustDependOnSomething) {
  run_ranks(1, [](const LocalJob& job, int number) {
    Rank rank(job, number);
    Loss loss = rank.model.loss({});
    loss.samples = 1;
    EXPECT_THROW(rank.optimizer->backward(rank.model.tape, loss), TrainerError);
  });
}

TEST(OptimizerStep, AddsUpMicroBatchesAndCommunicatesOnce) {
  run_ranks(2, [](const LocalJob& job, int number) {
    Rank rank(job, number, {.accumulate = 3, .bucket_bytes = 0});
    rank.backward({1.0F, 0.0F, 0.0F});
    rank.backward({0.0F, 2.0F, 0.0F}, {1.0F, 2.0F});
    rank.backward({0.0F, 0.0F, 4.0F});
    EXPECT_THROW(rank.backward({1.0F, 1.0F, 1.0F}), TrainerError);
    rank.optimizer->step();
    EXPECT_THAT(rank.model.a.value(), ElementsAre(-2.0F, -4.0F, -8.0F));
    EXPECT_THAT(rank.model.b.value(), ElementsAre(-2.0F, -4.0F));
    const AveragerStatistics averaging = rank.optimizer->averaging();
    EXPECT_EQ(averaging.steps, 1U);
    EXPECT_EQ(averaging.tensors, 2U);
    EXPECT_EQ(averaging.tensors_submitted_before_wait, 2U);
  });
}

// An operation whose backward takes a while.
Tensor slow(const Tensor& input) {
  return input.tape().record("slow", input.raw(), {input}, [](Backward& back) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    back.give(0, back.gradient());
  });
}

double seconds_before_wait(const OptimizerOptions& options) {
  double seconds = 0.0;
  run_ranks(2, [&](const LocalJob& job, int number) {
    Rank rank(job, number, options);
    Tape& tape = rank.model.tape;
    tape.begin();
    Loss loss;
    const Tensor first = sum(slow(tape.use(rank.model.a)));
    loss.value = first + sum(tape.use(rank.model.b));
    rank.optimizer->backward(tape, loss);
    rank.optimizer->step();
    EXPECT_THAT(rank.model.a.value(), Each(-2.0F));
    if (number == 0) seconds = rank.optimizer->averaging().seconds_before_wait;
    EXPECT_EQ(rank.optimizer->waited_seconds(), rank.optimizer->averaging().seconds_in_wait);
  });
  return seconds;
}

TEST(OptimizerStep, GradientsLeaveWhileBackwardGoesOn) {
  EXPECT_GE(seconds_before_wait({.bucket_bytes = 0}), 0.05);
  EXPECT_EQ(seconds_before_wait({}), 0.0) << "20 bytes fill no bucket";
  EXPECT_EQ(seconds_before_wait({.overlap = false, .bucket_bytes = 0}), 0.0);
}

TEST(OptimizerStep, ClipsByTheNormOfTheSum) {
  run_ranks(2, [](const LocalJob& job, int number) {
    Rank rank(job, number, {.clip_norm = 1.0});
    // The sum has the norm 10: each rank's has less than that of the two together.
    rank.backward(number == 0 ? std::vector{6.0F, 0.0F, 0.0F} : std::vector{0.0F, 0.0F, 0.0F},
                  number == 0 ? std::vector{0.0F, 0.0F} : std::vector{8.0F, 0.0F});
    EXPECT_DOUBLE_EQ(rank.optimizer->step().norm, 10.0);
    EXPECT_NEAR(rank.model.a.value()[0], -0.6F, 1e-6);
    EXPECT_NEAR(rank.model.b.value()[0], -0.8F, 1e-6);
    // A shorter one stays as it is, bit for bit.
    rank.backward({0.3F, 0.0F, 0.0F});
    rank.optimizer->step();
    EXPECT_EQ(rank.model.a.gradient()[0], 0.3F + 0.3F);
  });
}

TEST(OptimizerStep, RefusesWhatIsNotFiniteOnAllRanks) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
    run_ranks(3, [bad](const LocalJob& job, int number) {
      Rank rank(job, number);
      rank.backward({1.0F, 1.0F, 1.0F}, {number == 1 ? bad : 1.0F, 1.0F});
      try {
        rank.optimizer->step();
        ADD_FAILURE() << "rank " << number << " throws nothing";
      } catch (const NotFinite& error) {
        EXPECT_EQ(error.parameter(), "b");
        EXPECT_EQ(error.speaker(), 0);
        EXPECT_STREQ(error.what(),
                     "the gradient of b, summed over the ranks, is not finite in step 0: use a "
                     "smaller learning rate");
      }
      EXPECT_THAT(rank.model.a.value(), Each(0.0F));
      EXPECT_THAT(rank.model.b.value(), Each(0.0F));
      EXPECT_EQ(rank.optimizer->global_step(), 0U);
      EXPECT_EQ(rank.optimizer->rule().steps(), 0U);
      // Nothing of it is left in the next step.
      rank.backward({1.0F, 1.0F, 1.0F}, {1.0F, 1.0F});
      rank.optimizer->step();
      EXPECT_THAT(rank.model.b.value(), Each(-3.0F));
    });
  }
}

TEST(OptimizerStep, SaysThatF16EndsEarly) {
  run_ranks(2, [](const LocalJob& job, int number) {
    Rank rank(job, number, {.wire = Compression::kF16});
    rank.backward({1.0F, 1.0F, 60000.0F});
    try {
      rank.optimizer->step();
      ADD_FAILURE() << "the sum should not fit into f16";
    } catch (const NotFinite& error) {
      EXPECT_EQ(error.parameter(), "a");
      EXPECT_THAT(error.what(), HasSubstr("use bf16"));
    }
  });
}

TEST(OptimizerStep, WireRoundsGradients) {
  for (const Compression wire : {Compression::kBf16, Compression::kF16}) {
    run_ranks(2, [wire](const LocalJob& job, int number) {
      Rank rank(job, number, {.wire = wire});
      rank.backward({1.0F + 0x1p-20F, 0.5F, 0.0F});
      rank.optimizer->step();
      EXPECT_THAT(rank.model.a.value(), ElementsAre(-2.0F, -1.0F, 0.0F));
    });
  }
}

TEST(OptimizerStep, TakesTheRateOfTheGlobalStep) {
  run_ranks(2, [](const LocalJob& job, int number) {
    Rank rank(job, number);
    rank.optimizer.reset();
    OptimizerOptions options;
    options.schedule = {
        .kind = ScheduleOptions::Kind::kLinear, .learning_rate = 1.0, .warmup = 2, .total = 6};
    rank.make(options);
    for (const double rate : {0.5, 1.0, 1.0, 0.75}) {
      rank.backward({1.0F, 1.0F, 1.0F});
      EXPECT_EQ(rank.optimizer->step().learning_rate, rate);
    }
    EXPECT_EQ(rank.optimizer->global_step(), 4U);
    EXPECT_THAT(rank.model.a.value(), Each(-6.5F));
    rank.optimizer->set_global_step(5);
    EXPECT_EQ(rank.optimizer->step().learning_rate, 0.25);
  });
}

struct WithMeans : Pair {
  std::vector<float> means = std::vector<float>(4);
  [[nodiscard]] std::vector<StateTensor> statistics() { return {{"norm/mean", {4}, means}}; }
};

TEST(OptimizerStep, BroadcastsTheWholeState) {
  run_ranks(3, [](const LocalJob& job, int number) {
    const auto own = static_cast<float>(number);
    WithMeans model;
    std::vector<float>& means = model.means;
    JobRank strategy(job, number);
    Model under(model);
    Optimizer optimizer(under, adam(0.01));
    UpdateRule& adam = optimizer.rule();
    std::ranges::fill(means, own);
    std::ranges::fill(model.a.value(), own);
    std::ranges::fill(model.b.value(), own + 10.0F);
    for (const StateTensor& tensor : adam.state()) std::ranges::fill(tensor.values, own + 20.0F);
    adam.set_steps(static_cast<std::uint64_t>(number) + 5);
    optimizer.set_global_step(static_cast<std::uint64_t>(number) + 7);
    optimizer.broadcast_state(2);
    EXPECT_THAT(model.a.value(), Each(2.0F));
    EXPECT_THAT(model.b.value(), Each(12.0F));
    for (const StateTensor& tensor : adam.state()) EXPECT_THAT(tensor.values, Each(22.0F));
    EXPECT_THAT(means, Each(2.0F));
    EXPECT_EQ(adam.steps(), 7U);
    EXPECT_EQ(optimizer.global_step(), 9U);
    std::ranges::fill(means, own);
    optimizer.broadcast_statistics(1);
    EXPECT_THAT(means, Each(1.0F));
    EXPECT_THAT(model.a.value(), Each(2.0F));
  });
}

TEST(OptimizerStep, KnowsWhatHasBeenUsed) {
  run_ranks(1, [](const LocalJob& job, int number) {
    Rank rank(job, number, {.accumulate = 2});
    EXPECT_THAT(rank.optimizer->used(), ElementsAre(0, 0));
    rank.backward({1.0F, 1.0F, 1.0F});
    rank.backward({1.0F, 1.0F, 1.0F});
    rank.optimizer->step();
    EXPECT_THAT(rank.optimizer->used(), ElementsAre(1, 0));
    rank.backward({}, {1.0F, 1.0F});
    rank.optimizer->step();
    EXPECT_THAT(rank.optimizer->used(), ElementsAre(1, 1));
  });
}

TEST(OptimizerStep, GradientsLieOnTheBoardAsLongAsItLives) {
  run_ranks(2, [](const LocalJob& job, int number) {
    Rank rank(job, number);
    rank.optimizer.reset();
    const float* const own = rank.model.a.gradient().data();
    rank.make({.gradients = Gradients::kBoard});
    const float* const placed = rank.model.a.gradient().data();
    EXPECT_NE(placed, own);
    EXPECT_EQ(rank.model.b.gradient().data() - placed, 16) << "the next cache line";
    rank.backward({1.0F, 1.0F, 1.0F}, {1.0F, 1.0F});
    EXPECT_EQ(rank.model.a.gradient().data(), placed);
    rank.optimizer->step();
    EXPECT_THAT(rank.model.b.gradient(), Each(2.0F));
    rank.optimizer.reset();
    EXPECT_EQ(rank.model.a.gradient().data(), own);
  });
}

TEST(OptimizerStep, ParameterThatIsNotTheOptimisersIsLeftAlone) {
  run_ranks(1, [](const LocalJob& job, int number) {
    struct Half : Pair {
      std::vector<Parameter*> parameters() { return {&b}; }
    } model;
    const JobRank strategy(job, number);
    Model under(model);
    Optimizer optimizer(under, {.part_of_model = true});
    optimizer.backward(model.tape, model.loss({1.0F, 1.0F, 1.0F}, {1.0F, 1.0F}));
    optimizer.step();
    EXPECT_THAT(model.a.value(), Each(0.0F));
    EXPECT_THAT(model.b.value(), Each(-0.01F));
  });
}

// What is on its way when an exception unwinds is waited for, while gradients are still there; the
// engine serves others afterwards.
TEST(OptimizerStep, AbandonedStepLeavesNothingInFlight) {
  for (const Gradients where : {Gradients::kPlain, Gradients::kBoard}) {
    run_ranks(2, [where](const LocalJob& job, int number) {
      JobRank strategy(job, number);
      const auto abandon = [&] {
        Pair model;
        Model under(model);
        Optimizer optimizer(under, {.gradients = where, .bucket_bytes = 0});
        optimizer.backward(model.tape, model.loss({1.0F, 1.0F, 1.0F}, {1.0F, 1.0F}));
        throw std::runtime_error("the user has had enough");
      };
      EXPECT_THROW(abandon(), std::runtime_error);
      std::vector<float> one{1.0F};
      strategy.engine().allreduce_blocking("gradient/a", one, ronde::sum);
      EXPECT_EQ(one[0], 2.0F);
    });
  }
}

TEST(OptimizerStep, RefusesOptionsThatMakeNoSense) {
  run_ranks(1, [](const LocalJob& job, int number) {
    Rank rank(job, number);
    const auto refusal = [&rank](const OptimizerOptions& options) {
      return error_of([&] { rank.make(options); });
    };
    EXPECT_THAT(refusal({.accumulate = 0}), HasSubstr("accumulates 0 micro-batches"));
    EXPECT_THAT(refusal({.clip_norm = -1.0}), HasSubstr("norm of -1:"));
    EXPECT_THAT(refusal({.clip_norm = std::nan("")}), HasSubstr("norm of nan"));
    EXPECT_THAT(refusal({.schedule = {.learning_rate = -1.0}}), HasSubstr("learning rate is -1"));
  });
}

}  // namespace
}  // namespace ronde::trainer
