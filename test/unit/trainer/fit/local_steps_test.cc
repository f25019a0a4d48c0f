// SPDX-License-Identifier: Apache-2.0
// Averaging parameters instead of gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/error_of.h"
#include "test/unit/trainer/fit/toy_training.h"

namespace ronde::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;

ToyTraining local_steps(int ranks, std::uint64_t every) {
  ToyTraining training;
  training.ranks = ranks;
  training.rule = {};
  training.optimizer.average = Average::kWeights;
  training.optimizer.every = every;
  return training;
}

float farthest(const std::vector<float>& a, const std::vector<float>& b) {
  float worst = 0.0F;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return a.size() == b.size() ? worst : std::numeric_limits<float>::infinity();
}

// Parts of 4, 3 and 3 samples, of the last batch 2, 2 and 1.
TEST(LocalSteps, WeightsAveragedAfterEachStepOfPlainSgdAreThoseOfAveragedGradients) {
  ToyTraining gradients = local_steps(3, 1);
  gradients.optimizer.average = Average::kGradients;
  const ToyOutcome local = run_toy(local_steps(3, 1));
  EXPECT_LT(farthest(local.parameters, run_toy(gradients).parameters), 1e-5F);
  EXPECT_THAT(local.hashes, Each(local.hashes.front()));
  EXPECT_EQ(local.fit.samples, 3 * 205);
}

// Another result than that of gradients, and as good; the end of an epoch averages what is left.
TEST(LocalSteps, EverySoManyStepsTheRanksMeet) {
  const ToyOutcome each = run_toy(local_steps(3, 1));
  ToyTraining eight = local_steps(3, 8);
  eight.rule.momentum = 0.5;
  const ToyOutcome some = run_toy(eight);
  EXPECT_THAT(some.hashes, Each(some.hashes.front()));
  EXPECT_GT(farthest(some.parameters, each.parameters), 1e-4F);
  EXPECT_LT(some.fit.training.loss(), 1.2 * each.fit.training.loss());
}

TEST(LocalSteps, ANumberOfOneRankThatIsNotFiniteIsAnErrorOfAll) {
  ToyTraining training = local_steps(2, 4);
  training.loss = [](int rank) -> LossFunction {
    return [rank, calls = 0](const Tensor& outputs, const Batch& batch) mutable {
      Loss loss = classification_loss(outputs, batch);
      if (rank == 1 && ++calls == 7) loss.sum = std::numeric_limits<double>::quiet_NaN();
      return loss;
    };
  };
  EXPECT_THAT(error_of([&] { (void)run_toy(training); }),
              HasSubstr("rank 1: the loss is not a finite number"));
}

// It fails in a step after which nothing is averaged for long.
TEST(LocalSteps, ASampleThatCannotBeHadEndsTheEpochOfAll) {
  const auto train = [](const LocalJob& job, int rank) {
    const auto network = make_mlp(kFeatures, 12, kClasses, 5);
    JobRank strategy(job, rank);
    Model model(*network);
    OptimizerOptions options = local_steps(2, 1000).optimizer;
    model.compile(options, classification_loss, {}, 5);
    const Dataset data = Dataset::from_generator(
        {.shape = {kFeatures}, .classes = kClasses},
        [rank](std::uint64_t, std::size_t index, const SampleRoom& out) {
          if (rank == 1 && index == 45) throw DataError("sample 45 is torn");
          std::ranges::fill(out.input, 0.5F);
          *out.label = static_cast<std::int32_t>(index % kClasses);
          return true;
        },
        100);
    (void)model.fit(data.batch(10));
  };
  EXPECT_THAT(error_of([&] { run_ranks(2, train); }), HasSubstr("sample 45 is torn"));
}

TEST(LocalSteps, WhatCannotBeIsRefused) {
  ToyTraining none = local_steps(2, 0);
  EXPECT_THAT(error_of([&] { (void)run_toy(none); }), HasSubstr("every 0 steps"));
  ToyTraining half = local_steps(2, 1);
  half.optimizer.wire = Compression::kF16;
  EXPECT_THAT(error_of([&] { (void)run_toy(half); }), HasSubstr("--wire"));
}

}  // namespace
}  // namespace ronde::trainer
