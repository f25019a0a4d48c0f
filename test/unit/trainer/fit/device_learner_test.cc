// SPDX-License-Identifier: Apache-2.0
// Training on a device comes to what training in host memory comes to: over plain loops in host
// memory, and with tensors of a toy device, through its plug-in, streams and all.
#include "examples/gpu/device_learner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bindings/trainer/fit/fit.h"
#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/device/device_job.h"
#include "test/unit/trainer/fit/host_math.h"
#include "test/unit/trainer/fit/toy_training.h"

namespace ronde::trainer {
namespace {

// Memory of the toy device that the host can read too: what a stream waits for is waited for before
// the next loop.
class ToyMath final : public HostMath {
 public:
  ToyMath() : kit_(*device_test::Device::instance().kit), stream_(kit_.make_stream()) {}
  ~ToyMath() override { kit_.free_stream(stream_); }
  [[nodiscard]] int device() const override { return 0; }
  [[nodiscard]] void* stream() const override { return stream_; }
  void wait_for(Work& work) override {
    work.wait(stream_);
    kit_.synchronize(stream_);
  }
  [[nodiscard]] void* allocate(std::size_t bytes) override { return kit_.allocate_managed(bytes); }
  void release(void* memory) noexcept override { kit_.free(memory); }

 private:
  const ronde_device_kit& kit_;
  void* const stream_;
};

enum class Where { kHost, kLoops, kToyDevice };

std::unique_ptr<DeviceMath> math_of(Where where) {
  if (where == Where::kLoops) return std::make_unique<HostMath>();
  return std::make_unique<ToyMath>();
}

// A learner that owns its device.
class WithMath final : public Learner {
 public:
  WithMath(Where where, Engine& engine, Network model, const DeviceSgd& sgd, const Images& train,
           const Images& test)
      : math_(math_of(where)), learner_(engine, *math_, std::move(model), sgd, train) {
    learner_.evaluate_on(test);
  }
  void broadcast_state(int root) override { learner_.broadcast_state(root); }
  void try_shapes(const Batch& batch) override { learner_.try_shapes(batch); }
  void step(const StepBatch& batch, std::uint64_t epoch) override { learner_.step(batch, epoch); }
  Metrics take_metrics() override { return learner_.take_metrics(); }
  Metrics evaluate(const Batch& batch) override { return learner_.evaluate(batch); }
  std::vector<float> predict(const Batch& batch) override { return learner_.predict(batch); }
  std::string parameter_hash() override { return learner_.parameter_hash(); }
  [[nodiscard]] LearnerTimes times() const override { return learner_.times(); }

 private:
  std::unique_ptr<DeviceMath> math_;
  DeviceLearner learner_;
};

ToyOutcome train(Where where, int ranks, double momentum) {
  ToyTraining training;
  training.ranks = ranks;
  training.same_start = false;
  training.rule.momentum = momentum;
  training.optimizer.schedule.learning_rate = 0.01;
  if (where == Where::kHost) return run_toy(training);
  training.learner = [where, momentum](Engine& engine, Network model, const Images& data,
                                       const Images& test) {
    return std::make_unique<WithMath>(where, engine, std::move(model), DeviceSgd{0.01, momentum},
                                      data, test);
  };
  return run_toy(training);
}

void expect_alike(const ToyOutcome& outcome, const ToyOutcome& host, const std::string& what) {
  EXPECT_NEAR(outcome.fit.training.loss() / host.fit.training.loss(), 1.0, 1e-5) << what;
  EXPECT_EQ(outcome.test.correct, host.test.correct) << what;
  EXPECT_EQ(outcome.test.samples, host.test.samples) << what;
  EXPECT_THAT(outcome.hashes, testing::Each(outcome.hashes[0])) << what;
  ASSERT_EQ(outcome.parameters.size(), host.parameters.size());
  for (std::size_t i = 0; i < host.parameters.size(); ++i) {
    EXPECT_NEAR(outcome.parameters[i], host.parameters[i], 1e-4) << what << ", " << i;
  }
}

// 205 samples in batches of 10: the last one has 5, so that of 6 ranks one has none.
TEST(DeviceLearner, LearnsWhatTheHostLearns) {
  for (const double momentum : {0.0, 0.5}) {
    const ToyOutcome host = train(Where::kHost, 1, momentum);
    for (const int ranks : {1, 2, 6}) {
      expect_alike(train(Where::kLoops, ranks, momentum), host,
                   std::to_string(ranks) + " ranks, momentum " + std::to_string(momentum));
    }
  }
}

TEST(DeviceLearner, LearnsTheSameOverTheToyDevice) {
  if (device_test::Device::instance().kit == nullptr) {
    GTEST_SKIP() << "RONDE_DEVICE_PLUGIN names no toy device";
  }
  const ToyOutcome host = train(Where::kHost, 1, 0.5);
  ::setenv("RONDE_PLUGIN_PATH", std::getenv("RONDE_DEVICE_PLUGIN"), 1);
  for (const int ranks : {1, 3}) {
    expect_alike(train(Where::kToyDevice, ranks, 0.5), host, std::to_string(ranks) + " ranks");
  }
  ::setenv("RONDE_TOY", "staged", 1);
  expect_alike(train(Where::kToyDevice, 2, 0.5), host, "through host memory");
  ::unsetenv("RONDE_TOY");
  ::unsetenv("RONDE_PLUGIN_PATH");
}

TEST(DeviceLearner, RefusesWhatItCannotLearn) {
  const LocalJob job(1);
  Engine engine(job, 0);
  HostMath math;
  const Images images = toy_data(50, 1);
  const auto deep = make_mlp(kFeatures, 12, kClasses, 5);
  deep->add<Linear>("fc3", kClasses, kClasses, Initialization::kGlorot, 5U);
  EXPECT_THROW(DeviceLearner(engine, math, *deep, {0.1, 0.0}, images), TrainerError);

  const auto narrow = make_mlp(kFeatures, 12, 2, 5);  // fewer outputs than classes
  DeviceLearner learner(engine, math, *narrow, {0.1, 0.0}, images);
  StepBatch batch;
  batch.global_size = 50;
  batch.parts.resize(1);
  batch.parts[0].samples.resize(50);
  std::iota(batch.parts[0].samples.begin(), batch.parts[0].samples.end(), 0U);
  try {
    learner.step(batch, 0);
    FAIL() << "no error";
  } catch (const TrainerError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("has no output"));
  }
  const auto wide = make_mlp(kFeatures + 1, 12, kClasses, 5);
  DeviceLearner other(engine, math, *wide, {0.1, 0.0}, images);
  EXPECT_THROW(other.try_shapes(batch.parts[0]), TrainerError);
  EXPECT_THROW(other.step(batch, 0), TrainerError);
  batch.parts.resize(2);
  EXPECT_THROW(learner.step(batch, 0), TrainerError);
}

// Against products by definition, with sides that no two of which are equal.
TEST(ColumnMajor, IsTheSameProduct) {
  constexpr std::size_t kRows = 3;
  constexpr std::size_t kColumns = 5;
  constexpr std::size_t kTerms = 7;
  std::vector<float> a(kRows * kTerms);
  std::vector<float> b(kTerms * kColumns);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * i % 11);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * i % 13);
  for (const auto kind :
       {Product::Kind::kPlain, Product::Kind::kLeftTransposed, Product::Kind::kRightTransposed}) {
    std::vector<float> c(kRows * kColumns);
    HostMath().multiply({kind, a.data(), b.data(), c.data(), kRows, kColumns, kTerms});
    const bool left_transposed = kind == Product::Kind::kLeftTransposed;
    const bool right_transposed = kind == Product::Kind::kRightTransposed;
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kColumns; ++j) {
        float expected = 0.0F;
        for (std::size_t k = 0; k < kTerms; ++k) {
          expected += a[left_transposed ? k * kRows + i : i * kTerms + k] *
                      b[right_transposed ? j * kTerms + k : k * kColumns + j];
        }
        EXPECT_EQ(c[i * kColumns + j], expected) << i << ", " << j;
      }
    }
  }
}

}  // namespace
}  // namespace ronde::trainer
