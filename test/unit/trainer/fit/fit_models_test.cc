// SPDX-License-Identifier: Apache-2.0
// Training models with dropout, batch normalisation and convolutions on several ranks, and what is
// measured and agreed on the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/operations.h"
#include "test/unit/trainer/fit/toy_training.h"

namespace ronde::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;

Images large_images(std::size_t samples, std::uint64_t seed) {
  Images images;
  images.height = images.width = 28;
  images.classes = kClasses;
  images.deviation = 0.3F;
  Generator generator(seed);
  for (std::size_t i = 0; i < samples; ++i) {
    images.labels.push_back(static_cast<std::uint8_t>(generator.below(kClasses)));
  }
  for (std::size_t i = 0; i < samples * 784; ++i) {
    images.pixels.push_back(static_cast<std::uint8_t>(generator.below(256)));
  }
  return images;
}

// 20 images in batches of 6: of the last one, of 2, a third rank has none.
ToyTraining cnn() {
  ToyTraining training;
  training.model = [](std::uint64_t seed, int) { return make_cnn({.classes = kClasses}, seed); };
  training.images = large_images;
  training.shape = ImageShape::kImage;
  training.samples = 20;
  training.epochs = 2;
  training.global_batch = 6;
  training.optimizer.schedule.learning_rate = 0.01;
  return training;
}

TEST(FitModels, RanksGiveTheBitsOfOneRankThatAccumulatesForACnn) {
  ToyTraining alone = cnn();
  alone.optimizer.accumulate = 3;
  ToyTraining many = cnn();
  many.ranks = 3;
  EXPECT_THAT(run_toy(many).hashes, Each(run_toy(alone).hashes[0]));
}

TEST(FitModels, RanksGiveTheBitsOfOneRankThatAccumulatesWithDropout) {
  ToyTraining training;
  training.model = [](std::uint64_t seed, int) {
    auto model = std::make_unique<Layers>();
    model->add<Linear>("fc1", kFeatures, 12U, Initialization::kHe, seed);
    model->add<Applied>(relu);
    model->add<Dropout>("drop", 0.3);
    model->add<Linear>("fc2", 12U, kClasses, Initialization::kGlorot, seed);
    return model;
  };
  ToyTraining alone = training;
  alone.optimizer.accumulate = 4;
  training.ranks = 4;
  const ToyOutcome many = run_toy(training);
  EXPECT_THAT(many.hashes, Each(run_toy(alone).hashes[0]));
  EXPECT_NE(many.hashes[0], run_toy({.ranks = 4}).hashes[0]) << "nothing was dropped";
}

// Notes what validation said.
class Validated final : public Callback {
 public:
  void on_epoch(TrainingState& state) override { seen.push_back(state.validation.samples); }
  std::vector<double> seen;
};

TEST(FitModels, EvaluationUsesTheChiefsStatistics) {
  ToyTraining training = cnn();
  training.model = [](std::uint64_t seed, int) {
    return make_cnn({.classes = kClasses, .batch_norm = true}, seed);
  };
  training.ranks = 2;
  training.validate = true;
  Validated validated;
  training.callbacks = {&validated};
  const ToyOutcome outcome = run_toy(training);
  EXPECT_THAT(validated.seen, testing::ElementsAre(101, 101));
  const std::size_t each = outcome.statistics.size() / 2;
  ASSERT_EQ(each, 6U);
  for (std::size_t i = 0; i < each; ++i) {
    EXPECT_EQ(outcome.statistics[i], outcome.statistics[each + i]) << i;
  }
}

// Counts the batches of validations, and stops in one of them.
class StopsInValidation final : public Callback {
 public:
  explicit StopsInValidation(std::size_t at) : at_(at) {}
  void on_validation_batch(TrainingState& state) override { state.stop_now = ++batches == at_; }
  void on_epoch(TrainingState& /*state*/) override { ++epochs; }
  void on_end(TrainingState& state) override { stopped = state.stop_now; }

  std::size_t batches = 0;
  std::size_t epochs = 0;
  bool stopped = false;

 private:
  std::size_t at_;
};

TEST(FitModels, AValidationThatIsStoppedEndsTheTrainingInItsEpoch) {
  ToyTraining training;
  training.validate = true;  // 101 samples in batches of 50
  StopsInValidation stop(5);
  training.callbacks = {&stop};
  const FitResult result = run_toy(training).fit;
  EXPECT_EQ(stop.batches, 5U);
  EXPECT_EQ(stop.epochs, 1U) << "the second is not over";
  EXPECT_TRUE(stop.stopped);
  EXPECT_TRUE(result.cut_short);
  EXPECT_EQ(result.steps, 2U * 21U);
}

// Takes its time on one rank.
class Slow final : public Layer {
 public:
  explicit Slow(bool slow) : slow_(slow) {}
  Tensor operator()(const Tensor& input) override {
    if (slow_) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return input;
  }

 private:
  bool slow_;
};

TEST(FitModels, TheStragglerIsTheRankThatTheOthersWaitFor) {
  ToyTraining training{.ranks = 3};
  training.model = [](std::uint64_t seed, int rank) {
    auto model = make_mlp(kFeatures, 12, kClasses, seed);
    model->add<Slow>(rank == 2);
    return model;
  };
  const FitResult fit = run_toy(training).fit;
  EXPECT_EQ(fit.straggler, 2);
  EXPECT_GT(fit.wait_seconds, 0.5 * static_cast<double>(fit.steps) * 0.003);
  EXPECT_LT(fit.wait_seconds, fit.seconds);
}

// Ends in a ReLU, which lets no gradient through a NaN.
std::string error_of_swallowed_nan(int bad_rank) {
  std::string text = "none";
  ToyTraining training{.ranks = 2};
  training.loss = [bad_rank](int rank) {
    const float factor = rank == bad_rank ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
    return [factor](const Tensor& outputs, const Batch&) {
      const std::vector<float> targets(outputs.size(), 1.0F);
      return mean_squared_error(relu(outputs * factor), targets);
    };
  };
  try {
    run_toy(training);
  } catch (const AgreedError& error) {
    text = error.what();
  }
  return text;
}

TEST(FitModels, ALossThatNoGradientTellsOfIsFoundInItsStep) {
  EXPECT_EQ(error_of_swallowed_nan(-1), "none");
  EXPECT_THAT(error_of_swallowed_nan(1),
              HasSubstr("step 1 of epoch 1: rank 1: the loss is not a finite number, first after "
                        "scale"));
}

}  // namespace
}  // namespace ronde::trainer
