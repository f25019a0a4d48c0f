// SPDX-License-Identifier: Apache-2.0
// Training where each process has samples of its own, and so other numbers of batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/losses.h"
#include "test/unit/trainer/error_of.h"
#include "test/unit/trainer/fit/toy_training.h"

namespace ronde::trainer {
namespace {

using testing::HasSubstr;

constexpr std::size_t kEpochs = 2;
constexpr std::size_t kBatch = 8;
// 5, 1 and 4 batches; the last of the third is smaller.
constexpr std::array<std::size_t, 3> kSamples{40, 8, 25};

const OptimizerOptions kOptimizer{.rule = {.momentum = 0.9}, .schedule = {.learning_rate = 0.05}};

Dataset samples_of(std::size_t rank) {
  return Dataset::from_images(toy_data(kSamples[rank], 10 + rank), ImageShape::kFlat).batch(kBatch);
}

void append(StepBatch& all, const Batch& more) {
  Batch& batch = all.parts.front();
  batch.shape[0] += more.size();
  batch.inputs.insert(batch.inputs.end(), more.inputs.begin(), more.inputs.end());
  batch.labels.insert(batch.labels.end(), more.labels.begin(), more.labels.end());
  batch.samples.insert(batch.samples.end(), more.samples.begin(), more.samples.end());
  batch.repetitions.insert(batch.repetitions.end(), more.repetitions.begin(),
                           more.repetitions.end());
  all.global_size = batch.size();
}

// One rank alone takes steps of what the ranks that have a batch left give.
std::vector<float> parameters_of_one_rank() {
  std::vector<float> parameters;
  run_ranks(1, [&](const LocalJob& job, int rank) {
    const auto network = make_mlp(kFeatures, 12, kClasses, 5);
    JobRank strategy(job, rank);
    Model model(*network);
    model.compile(kOptimizer, classification_loss, {}, 5);
    for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
      std::vector<Epoch> batches;
      for (std::size_t one = 0; one < kSamples.size(); ++one) {
        batches.push_back(samples_of(one).epoch(epoch));
      }
      while (true) {
        std::optional<StepBatch> all;
        for (Epoch& one : batches) {
          const StepBatch* const batch = one.next();
          if (batch == nullptr) continue;
          if (all) append(*all, batch->parts.front());
          if (!all) all = *batch;
        }
        if (!all) break;
        const Part part = strategy.here().begin(*all);
        model.optimizer().minimize(strategy.here(),
                                   softmax_cross_entropy(model(part.inputs), part.labels));
      }
    }
    for (const Parameter* const one : network->parameters()) {
      parameters.insert(parameters.end(), one->value().begin(), one->value().end());
    }
  });
  return parameters;
}

TEST(OwnData, RanksWithoutBatchesJoinAndEachSampleCountsOnce) {
  std::mutex mutex;
  std::vector<std::string> hashes;
  std::vector<float> parameters;
  run_ranks(3, [&](const LocalJob& job, int rank) {
    const auto network = make_mlp(kFeatures, 12, kClasses, 5 + static_cast<std::uint64_t>(rank));
    JobRank strategy(job, rank);
    Model model(*network);
    model.compile(kOptimizer, classification_loss, {}, 5);
    const Dataset mine = samples_of(static_cast<std::size_t>(rank)).own();
    const FitResult result = model.fit(mine, {.epochs = kEpochs});
    EXPECT_EQ(result.steps, 5 * kEpochs);
    EXPECT_EQ(result.samples, (40 + 8 + 25) * kEpochs);
    EXPECT_EQ(result.training.samples, 40 + 8 + 25);
    EXPECT_EQ(model.evaluate(mine).samples, 40 + 8 + 25);
    const std::lock_guard lock(mutex);
    hashes.push_back(model.learner().parameter_hash());
    if (rank != 0) return;
    for (const Parameter* const one : network->parameters()) {
      parameters.insert(parameters.end(), one->value().begin(), one->value().end());
    }
  });
  EXPECT_THAT(hashes, testing::Each(hashes.front()));
  const std::vector<float> expected = parameters_of_one_rank();
  ASSERT_EQ(parameters.size(), expected.size());
  float worst = 0.0F;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(parameters[i] - expected[i]));
  }
  EXPECT_LT(worst, 1e-5F);
}

TEST(OwnData, ARankThatHasJoinedLearnsWhyTheOthersEnd) {
  run_ranks(3, [&](const LocalJob& job, int rank) {
    const auto network = make_mlp(kFeatures, 12, kClasses, 5);
    JobRank strategy(job, rank);
    Model model(*network);
    model.compile(kOptimizer, classification_loss, {}, 5);
    const std::size_t samples = kSamples[static_cast<std::size_t>(rank)];
    std::vector<float> inputs(samples * kFeatures, 0.5F);
    if (rank == 2) inputs.back() = std::nanf("");  // in the last batch, when rank 1 has joined
    const std::vector<std::int32_t> labels(samples, 1);
    const Dataset mine =
        Dataset::from_memory({kFeatures}, inputs, labels, kClasses).batch(kBatch).own();
    EXPECT_THAT(error_of([&] { (void)model.fit(mine, {.epochs = kEpochs}); }),
                testing::AllOf(HasSubstr("step 4 of epoch 1"), HasSubstr("rank 2")));
  });
}

TEST(OwnData, WhatCannotBeIsRefusedOnEachRank) {
  run_ranks(2, [&](const LocalJob& job, int rank) {
    const auto network = make_mlp(kFeatures, 12, kClasses, 5);
    JobRank strategy(job, rank);
    Model model(*network);
    model.compile(kOptimizer, classification_loss, {}, 5);
    const Dataset mine = samples_of(static_cast<std::size_t>(rank));
    EXPECT_THAT(error_of([&] { (void)model.fit(rank == 0 ? mine.own() : mine); }),
                HasSubstr("each process's own"));
    EXPECT_THAT(error_of([&] { (void)model.predict(mine.own()); }),
                HasSubstr("leave Dataset::own() out"));
  });
}

}  // namespace
}  // namespace ronde::trainer
