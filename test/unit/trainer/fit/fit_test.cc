// SPDX-License-Identifier: Apache-2.0
// Training on the ranks of a job inside this process: it learns, and it learns the same thing for
// every number of ranks and every order of submission.
#include "bindings/trainer/fit/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/operations.h"
#include "test/unit/trainer/fit/toy_training.h"

namespace ronde::trainer {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Fit, LearnsAToyProblem) {
  const ToyOutcome outcome = run_toy({.ranks = 2, .epochs = 10});
  EXPECT_GT(outcome.test.accuracy(), 0.9);
  EXPECT_LT(outcome.fit.training.loss(), 0.3);
  EXPECT_GT(outcome.fit.training.accuracy(), 0.9);
  EXPECT_EQ(outcome.fit.steps, 10U * 21U);
  EXPECT_EQ(outcome.fit.samples, 10U * 205U);
  EXPECT_EQ(outcome.test.samples, 101);
}

ToyTraining slow() {
  ToyTraining training;
  training.rule.momentum = 0.5;
  training.optimizer.schedule.learning_rate = 0.01;
  return training;
}

TEST(Fit, TheMathsDoesNotDependOnTheNumberOfRanks) {
  // 205 samples in batches of 10: the last one has 5, so that of 6 ranks one has none.
  const ToyOutcome alone = run_toy(slow());
  for (const int ranks : {2, 3, 4, 6}) {
    ToyTraining training = slow();
    training.ranks = ranks;
    const ToyOutcome many = run_toy(training);
    EXPECT_NEAR(many.fit.training.loss() / alone.fit.training.loss(), 1.0, 1e-5) << ranks;
    EXPECT_EQ(many.test.correct, alone.test.correct) << ranks << " ranks";
    ASSERT_EQ(many.parameters.size(), alone.parameters.size());
    for (std::size_t i = 0; i < alone.parameters.size(); ++i) {
      EXPECT_NEAR(many.parameters[i], alone.parameters[i], 1e-4) << ranks << " ranks";
    }
    EXPECT_THAT(many.hashes, Each(many.hashes[0]));
  }
}

TEST(Fit, StartsFromTheParametersOfRankZero) {
  const ToyOutcome same = run_toy({.ranks = 3});
  const ToyOutcome different = run_toy({.ranks = 3, .same_start = false});
  EXPECT_THAT(different.hashes, Each(same.hashes[0]));
}

TEST(Fit, EndsAfterSoManySteps) {
  EXPECT_EQ(run_toy({.ranks = 2, .most_steps = 30}).fit.steps, 30U);
}

// Stops after the second epoch, and notes what it was told.
class StopEarly final : public Callback {
 public:
  void on_start(TrainingState& /*state*/) override { calls += "start "; }
  void on_step(TrainingState& state) override { last_step = state.global_step; }
  void on_epoch(TrainingState& state) override {
    calls += "epoch ";
    EXPECT_EQ(state.training.samples, 205);
    EXPECT_EQ(state.samples, 205U);
    if (state.epoch == 1) state.stop = true;
  }
  void on_end(TrainingState& /*state*/) override { calls += "end"; }

  std::string calls;
  std::uint64_t last_step = 0;
};

TEST(Fit, CallsBackAndStopsWhenACallbackSaysSo) {
  StopEarly stop;
  // On rank 0 alone: the other one stops with it.
  const ToyOutcome outcome = run_toy({.ranks = 2, .epochs = 9, .callbacks = {&stop}});
  EXPECT_EQ(stop.calls, "start epoch epoch end");
  EXPECT_EQ(stop.last_step, 42U);
  EXPECT_EQ(outcome.fit.steps, 42U);
}

// The text of the AgreedError that training of a model of its own ends with, by rank; all of them
// are such that another start would end alike.
template <typename MakeModel>
std::vector<std::string> errors_of(int ranks, const MakeModel& make_model) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks), "none");
  run_ranks(ranks, [&](const LocalJob& job, int rank) {
    const Images images = toy_data(40, 1);
    auto network = make_model(rank);
    ToyRank toy(job, rank, *network);
    try {
      toy.model.fit(Dataset::from_images(images, ImageShape::kFlat).batch(8), {.epochs = 2});
    } catch (const AgreedError& error) {
      errors[static_cast<std::size_t>(rank)] = error.what();
      EXPECT_EQ(error.exit_code(), kExitConfiguration);
    }
  });
  return errors;
}

TEST(Fit, AModelThatDoesNotFitNamesBothLayers) {
  const auto errors = errors_of(2, [](int) {
    auto model = std::make_unique<Layers>();
    model->add<Linear>("fc1", kFeatures, 12U, Initialization::kHe, 1U);
    model->add<Linear>("fc2", 13U, kClasses, Initialization::kGlorot, 1U);
    return model;
  });
  EXPECT_THAT(errors, Each(HasSubstr("fc1/weight")));
  EXPECT_THAT(errors, Each(HasSubstr("fc2/weight (13 x 4)")));
}

// Its hidden layer overflows on one rank in the second step.
class Overflows final : public Layer {
 public:
  explicit Overflows(bool bad) : bad_(bad) {}

  Tensor operator()(const Tensor& input) override {
    const Tensor hidden = first_(input);
    // The first call is the trial of the shapes.
    const bool now = bad_ && ++calls_ == 3;
    return last_(hidden * (now ? std::numeric_limits<float>::infinity() : 1.0F));
  }
  [[nodiscard]] std::vector<Parameter*> parameters() override {
    std::vector<Parameter*> all = first_.parameters();
    for (Parameter* const one : last_.parameters()) all.push_back(one);
    return all;
  }

 private:
  bool bad_;
  int calls_ = 0;
  Linear first_{"fc1", kFeatures, 8, Initialization::kHe, 1};
  Linear last_{"fc2", 8, kClasses, Initialization::kHe, 1};
};

TEST(Fit, ALossThatIsNoNumberNamesRankLayerAndStep) {
  const auto errors = errors_of(3, [](int rank) { return std::make_unique<Overflows>(rank == 1); });
  EXPECT_THAT(errors,
              Each(HasSubstr("step 2 of epoch 1: rank 1: the loss is not a finite number")));
  EXPECT_THAT(errors, Each(HasSubstr("first after scale")));
  EXPECT_THAT(errors, Each(HasSubstr("smaller learning rate")));
}

// Lists a layer that it may not use.
class Forgets final : public Layer {
 public:
  explicit Forgets(bool uses) : uses_(uses) {}

  Tensor operator()(const Tensor& input) override {
    return uses_ ? used_(input) + other_(input) : used_(input);
  }
  [[nodiscard]] std::vector<Parameter*> parameters() override {
    std::vector<Parameter*> all = used_.parameters();
    for (Parameter* const one : other_.parameters()) all.push_back(one);
    return all;
  }

 private:
  bool uses_;
  Linear used_{"fc1", kFeatures, kClasses, Initialization::kHe, 1};
  Linear other_{"extra", kFeatures, kClasses, Initialization::kHe, 1};
};

TEST(Fit, AParameterThatNoRankUsesIsNamed) {
  EXPECT_THAT(errors_of(2, [](int) { return std::make_unique<Forgets>(false); }),
              Each(HasSubstr("extra/weight, extra/bias")));
  EXPECT_THAT(errors_of(2, [](int rank) { return std::make_unique<Forgets>(rank == 1); }),
              Each("none"));
}

// Has stepped before; each further step takes 4 ms and says which parts of it were what.
class KnownTimes final : public Learner {
 public:
  static constexpr double kOverlapped = 0.0010;
  static constexpr double kUpdate = 0.0005;

  void broadcast_state(int /*root*/) override {}
  void try_shapes(const Batch& /*batch*/) override {}
  void step(const StepBatch& /*batch*/, std::uint64_t /*epoch*/) override {
    ++steps_;
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
  }
  Metrics take_metrics() override { return {}; }
  Metrics evaluate(const Batch& /*batch*/) override { return {}; }
  std::vector<float> predict(const Batch& /*batch*/) override { return {}; }
  std::string parameter_hash() override { return ""; }
  LearnerTimes times() const override {
    return {.overlapped_seconds = steps_ * kOverlapped, .update_seconds = steps_ * kUpdate};
  }

 private:
  double steps_ = 100;
};

TEST(Fit, WhatCameBeforeTheFirstGradientIsTheRestOfAStep) {
  ToyTraining training;
  training.most_steps = 10;
  training.learner = [](auto&&...) { return std::make_unique<KnownTimes>(); };
  const FitResult fit = run_toy(training).fit;
  EXPECT_NEAR(fit.update_seconds, 10 * KnownTimes::kUpdate, 1e-9);
  EXPECT_GE(fit.first_gradient_seconds,
            10 * (0.004 - KnownTimes::kOverlapped - KnownTimes::kUpdate));
  EXPECT_NEAR(fit.first_gradient_seconds + fit.wait_seconds + fit.update_seconds,
              fit.seconds - 10 * KnownTimes::kOverlapped, 1e-9);
}

TEST(Fit, GradientsThatLeaveAtTheEndLeaveLaterThanThoseThatLeaveAtOnce) {
  ToyTraining training{.ranks = 2};
  training.optimizer.bucket_bytes = 0;
  const FitResult at_once = run_toy(training).fit;
  training.optimizer.overlap = false;
  const FitResult at_end = run_toy(training).fit;
  // The rest of the step is the update and the wait, from the moment in which the last gradient is
  // there.
  const auto backward = [](const FitResult& fit) {
    return fit.seconds - fit.wait_seconds - fit.update_seconds - fit.first_gradient_seconds;
  };
  EXPECT_GT(backward(at_once), 0.0);
  EXPECT_NEAR(backward(at_end), 0.0, 1e-9);
  EXPECT_GT(at_end.update_seconds, 0.0);
}

TEST(Evaluate, EndsAfterTheBatchForWhichItIsAskedTo) {
  run_ranks(2, [](const LocalJob& job, int rank) {
    const Images images = toy_data(50, 1);
    const auto network = make_mlp(kFeatures, 6, kClasses, 1);
    ToyRank toy(job, rank, *network);
    const Dataset data = Dataset::from_images(images, ImageShape::kFlat)
                             .batch(10)
                             .shard(static_cast<std::size_t>(rank), 2);
    int batches = 0;
    EXPECT_EQ(evaluate(toy.here, toy.model.learner(), data, [&] { return ++batches == 2; }).samples,
              20);
    EXPECT_EQ(evaluate(toy.here, toy.model.learner(), data, [] { return false; }).samples, 50);
    EXPECT_EQ(evaluate(toy.here, toy.model.learner(), data).samples, 50);
  });
}

// By rank, of the samples of `order` of five images.
std::vector<Predictions> predictions(int ranks, const std::function<Dataset(Dataset)>& order) {
  std::vector<Predictions> all(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](const LocalJob& job, int rank) {
    const Images images = toy_data(5, 1);
    const auto network = make_mlp(kFeatures, 6, kClasses, 1);
    ToyRank toy(job, rank, *network);
    const auto at = static_cast<std::size_t>(rank);
    all[at] = predict(toy.here, toy.model.learner(),
                      order(Dataset::from_images(images, ImageShape::kFlat))
                          .batch(2)
                          .shard(at, static_cast<std::size_t>(ranks)));
  });
  return all;
}

TEST(Predict, GivesTheOutputsOfThisRanksSamplesInTheOrderOfTheDataSet) {
  const auto as_they_are = [](const Dataset& data) { return data; };
  const Predictions whole = predictions(1, as_they_are)[0];
  EXPECT_THAT(whole.samples, ElementsAre(0, 1, 2, 3, 4));
  ASSERT_EQ(whole.outputs.size(), 5 * kClasses);
  const auto parts = predictions(2, as_they_are);
  EXPECT_THAT(parts[0].samples, ElementsAre(0, 2, 4)) << "of batches of 2, 2 and 1";
  EXPECT_THAT(parts[1].samples, ElementsAre(1, 3));
  const Predictions shuffled = predictions(1, [](auto data) { return data.shuffle(3); })[0];
  EXPECT_EQ(shuffled.samples, whole.samples);
  const auto expect_rows_of_whole = [&](const Predictions& some) {
    ASSERT_EQ(some.outputs.size(), some.samples.size() * kClasses);
    for (std::size_t i = 0; i < some.outputs.size(); ++i) {
      const std::size_t row = some.samples[i / kClasses];
      EXPECT_NEAR(some.outputs[i], whole.outputs[row * kClasses + i % kClasses], 1e-5);
    }
  };
  expect_rows_of_whole(shuffled);
  for (const Predictions& part : parts) expect_rows_of_whole(part);
  EXPECT_THAT(predictions(1, [](auto data) { return data.take(2).repeat(2); })[0].samples,
              ElementsAre(0, 0, 1, 1));
}

}  // namespace
}  // namespace ronde::trainer
