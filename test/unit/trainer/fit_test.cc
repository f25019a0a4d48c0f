// SPDX-License-Identifier: Apache-2.0
// Training on the ranks of a job inside this process: it learns, and it learns the same thing for
// every number of ranks and every order of submission.
#include "bindings/trainer/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "bindings/trainer/errors.h"
#include "bindings/trainer/host_learner.h"
#include "bindings/trainer/random.h"
#include "bindings/trainer/sgd.h"
#include "test/unit/trainer/local_ranks.h"
#include "test/unit/trainer/toy_data.h"

namespace ronde::trainer {
namespace {

struct TrainingRun {
  int ranks = 1;
  std::size_t epochs = 3;
  std::size_t global_batch = 10;
  double learning_rate = 0.05;
  double momentum = 0.9;
  std::uint64_t shuffle_seed = 0;
  bool same_start = true;  // otherwise only the broadcast makes the ranks' parameters equal
};

struct Outcome {
  double loss = 0.0;
  double accuracy = 0.0;
  std::uint64_t steps = 0;
  std::vector<std::string> hashes;
  std::vector<float> parameters;  // of rank 0
};

void run_rank(const TrainingRun& run, const LocalJob& job, int rank, std::mutex& mutex,
              Outcome& outcome) {
  const Dataset train = toy_data(205, 1);
  const Dataset test = toy_data(101, 2);
  const std::uint64_t seed = run.same_start ? 5 : 5 + static_cast<std::uint64_t>(rank);
  Model model = make_mlp(kFeatures, 12, kClasses, seed);
  Engine engine(job, rank);
  HostLearner learner(engine, model, {run.learning_rate, run.momentum}, run.shuffle_seed);
  Progress progress(nullptr, nullptr);
  const FitResult fit_result =
      fit(engine, learner, train, {run.epochs, run.global_batch, 7}, progress);
  const double accuracy = evaluate(engine, learner, test);
  const std::lock_guard lock(mutex);
  outcome.hashes.push_back(model.parameter_hash());
  if (rank != 0) return;
  outcome.loss = fit_result.train_loss;
  outcome.accuracy = accuracy;
  outcome.steps = fit_result.steps;
  for (const Parameter* parameter : model.parameters()) {
    const auto values = parameter->value.values();
    outcome.parameters.insert(outcome.parameters.end(), values.begin(), values.end());
  }
}

Outcome train(const TrainingRun& run) {
  set_blas_threads(1);
  Outcome outcome;
  std::mutex mutex;
  run_ranks(run.ranks,
            [&](const LocalJob& job, int rank) { run_rank(run, job, rank, mutex, outcome); });
  return outcome;
}

TEST(Fit, LearnsAToyProblem) {
  const Outcome outcome = train({.ranks = 2, .epochs = 10});
  EXPECT_GT(outcome.accuracy, 0.9);
  EXPECT_LT(outcome.loss, 0.3);
  EXPECT_EQ(outcome.steps, 10U * 21U);
}

TEST(Fit, TheMathsDoesNotDependOnTheNumberOfRanks) {
  // 205 samples in batches of 10: the last one has 5, so that of 6 ranks one has none.
  const Outcome alone = train({.learning_rate = 0.01, .momentum = 0.5});
  for (const int ranks : {2, 3, 4, 6}) {
    const Outcome many = train({.ranks = ranks, .learning_rate = 0.01, .momentum = 0.5});
    EXPECT_NEAR(many.loss / alone.loss, 1.0, 1e-5) << ranks << " ranks";
    EXPECT_EQ(many.accuracy, alone.accuracy) << ranks << " ranks";
    ASSERT_EQ(many.parameters.size(), alone.parameters.size());
    for (std::size_t i = 0; i < alone.parameters.size(); ++i) {
      EXPECT_NEAR(many.parameters[i], alone.parameters[i], 1e-4) << ranks << " ranks";
    }
    EXPECT_THAT(many.hashes, testing::Each(many.hashes[0]));
  }
}

TEST(Fit, EveryOrderOfSubmissionGivesTheSameParameters) {
  const Outcome usual = train({.ranks = 3});
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const Outcome shuffled = train({.ranks = 3, .shuffle_seed = seed});
    EXPECT_THAT(shuffled.hashes, testing::Each(usual.hashes[0]));
  }
}

TEST(Fit, StartsFromTheParametersOfRankZero) {
  const Outcome same = train({.ranks = 3});
  const Outcome different = train({.ranks = 3, .same_start = false});
  EXPECT_THAT(different.hashes, testing::Each(same.hashes[0]));
}

TEST(Fit, ALossThatIsNoNumberIsAnErrorOfEveryRank) {
  const TrainingRun run{.ranks = 2, .learning_rate = 1e30};
  try {
    train(run);
    FAIL() << "no error";
  } catch (const AgreedError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the loss of epoch"));
    EXPECT_THAT(error.what(), testing::HasSubstr("smaller learning rate"));
    EXPECT_EQ(error.speaker(), 0);
  }
}

TEST(BroadcastState, CarriesVelocitiesToo) {
  run_ranks(2, [](const LocalJob& job, int rank) {
    Model model = make_mlp(2, 2, 2, 1);
    Engine engine(job, rank);
    Sgd sgd(model, 0.1, 0.9);
    for (Matrix& velocity : sgd.velocities()) velocity.fill(static_cast<float>(rank + 1));
    DistributedOptimizer optimizer(engine, model, sgd);
    optimizer.broadcast_state(1);
    for (const Matrix& velocity : sgd.velocities()) {
      EXPECT_THAT(velocity.values(), testing::Each(2.0F));
    }
  });
}

}  // namespace
}  // namespace ronde::trainer
