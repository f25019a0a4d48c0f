// SPDX-License-Identifier: Apache-2.0
// Training on a device comes to what training in host memory comes to: over plain loops in host
// memory, and with tensors of a toy device, through its plug-in, streams and all.
#include "bindings/trainer/device_learner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "bindings/trainer/errors.h"
#include "bindings/trainer/fit.h"
#include "bindings/trainer/host_learner.h"
#include "test/device/device_job.h"
#include "test/unit/trainer/host_math.h"
#include "test/unit/trainer/local_ranks.h"
#include "test/unit/trainer/toy_data.h"

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

struct Training {
  Where where = Where::kHost;
  int ranks = 1;
  SgdOptions sgd{0.05, 0.9};
};

struct Outcome {
  double loss = 0.0;
  double accuracy = 0.0;
  std::vector<std::string> hashes;
  std::vector<float> parameters;  // of rank 0
};

std::unique_ptr<DeviceMath> math_of(Where where) {
  if (where == Where::kLoops) return std::make_unique<HostMath>();
  if (where == Where::kToyDevice) return std::make_unique<ToyMath>();
  return nullptr;
}

void run_rank(const Training& training, const LocalJob& job, int rank, std::mutex& mutex,
              Outcome& outcome) {
  const Dataset train = toy_data(205, 1);
  const Dataset test = toy_data(101, 2);
  const std::unique_ptr<DeviceMath> math = math_of(training.where);
  // Only the broadcast makes the ranks' parameters equal.
  Model model = make_mlp(kFeatures, 12, kClasses, 5 + static_cast<std::uint64_t>(rank));
  Engine engine(job, rank);
  std::unique_ptr<Learner> learner;
  if (math == nullptr) {
    learner = std::make_unique<HostLearner>(engine, model, training.sgd);
  } else {
    learner = std::make_unique<DeviceLearner>(engine, *math, model, training.sgd);
  }
  Progress progress(nullptr, nullptr);
  const FitResult result = fit(engine, *learner, train, {3, 10, 7}, progress);
  const double accuracy = evaluate(engine, *learner, test);
  const std::string hash = learner->parameter_hash();
  learner.reset();
  engine.close();
  const std::lock_guard lock(mutex);
  outcome.hashes.push_back(hash);
  if (rank != 0) return;
  outcome.loss = result.train_loss;
  outcome.accuracy = accuracy;
  for (const Parameter* parameter : model.parameters()) {
    const auto values = std::as_const(parameter->value).values();
    outcome.parameters.insert(outcome.parameters.end(), values.begin(), values.end());
  }
}

Outcome train(const Training& training) {
  set_blas_threads(1);
  Outcome outcome;
  std::mutex mutex;
  run_ranks(training.ranks,
            [&](const LocalJob& job, int rank) { run_rank(training, job, rank, mutex, outcome); });
  return outcome;
}

void expect_alike(const Outcome& outcome, const Outcome& host, const std::string& what) {
  EXPECT_NEAR(outcome.loss / host.loss, 1.0, 1e-5) << what;
  EXPECT_EQ(outcome.accuracy, host.accuracy) << what;
  EXPECT_THAT(outcome.hashes, testing::Each(outcome.hashes[0])) << what;
  ASSERT_EQ(outcome.parameters.size(), host.parameters.size());
  for (std::size_t i = 0; i < host.parameters.size(); ++i) {
    EXPECT_NEAR(outcome.parameters[i], host.parameters[i], 1e-4) << what << ", " << i;
  }
}

// 205 samples in batches of 10: the last one has 5, so that of 6 ranks one has none.
TEST(DeviceLearner, LearnsWhatTheHostLearns) {
  for (const double momentum : {0.0, 0.5}) {
    const SgdOptions sgd{0.01, momentum};
    const Outcome host = train({Where::kHost, 1, sgd});
    for (const int ranks : {1, 2, 6}) {
      expect_alike(train({Where::kLoops, ranks, sgd}), host,
                   std::to_string(ranks) + " ranks, momentum " + std::to_string(momentum));
    }
  }
}

TEST(DeviceLearner, LearnsTheSameOverTheToyDevice) {
  if (device_test::Device::instance().kit == nullptr) {
    GTEST_SKIP() << "RONDE_DEVICE_PLUGIN names no toy device";
  }
  const Outcome host = train({Where::kHost, 1, {0.01, 0.5}});
  ::setenv("RONDE_PLUGIN_PATH", std::getenv("RONDE_DEVICE_PLUGIN"), 1);
  for (const int ranks : {1, 3}) {
    expect_alike(train({Where::kToyDevice, ranks, {0.01, 0.5}}), host,
                 std::to_string(ranks) + " ranks");
  }
  ::setenv("RONDE_TOY", "staged", 1);
  expect_alike(train({Where::kToyDevice, 2, {0.01, 0.5}}), host, "through host memory");
  ::unsetenv("RONDE_TOY");
  ::unsetenv("RONDE_PLUGIN_PATH");
}

TEST(DeviceLearner, RefusesWhatItCannotLearn) {
  const LocalJob job(1);
  Engine engine(job, 0);
  HostMath math;
  Model deep = make_mlp(kFeatures, 12, kClasses, 5);
  deep.add<Dense>("fc3", kClasses, kClasses, Initialization::kGlorot, 5);
  EXPECT_THROW(DeviceLearner(engine, math, deep, {0.1, 0.0}), TrainerError);

  Model model = make_mlp(kFeatures, 12, 2, 5);  // fewer outputs than classes
  DeviceLearner learner(engine, math, model, {0.1, 0.0});
  const Dataset data = toy_data(50, 1);
  std::vector<std::uint32_t> samples(50);
  std::iota(samples.begin(), samples.end(), 0U);
  try {
    learner.step(data, samples, samples.size());
    FAIL() << "no error";
  } catch (const TrainerError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("has no output"));
  }
  Model wide = make_mlp(kFeatures + 1, 12, kClasses, 5);
  DeviceLearner other(engine, math, wide, {0.1, 0.0});
  EXPECT_THROW(other.step(data, samples, samples.size()), TrainerError);
}

// Against the products of host memory, with sides that no two of which are equal.
TEST(ColumnMajor, IsTheSameProduct) {
  const std::size_t rows = 3;
  const std::size_t columns = 5;
  const std::size_t terms = 7;
  const auto filled = [](std::size_t height, std::size_t width) {
    Matrix matrix(height, width);
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      matrix.data()[i] = static_cast<float>(i * i % 11);
    }
    return matrix;
  };
  const auto product = [&](Product::Kind kind, const Matrix& a, const Matrix& b) {
    Matrix c(rows, columns);
    HostMath().multiply({kind, a.data(), b.data(), c.data(), rows, columns, terms});
    return c;
  };
  const auto expect_same = [](const Matrix& a, const Matrix& b) {
    EXPECT_THAT(a.values(), testing::ElementsAreArray(b.values()));
  };
  Matrix expected(rows, columns);
  {
    const Matrix a = filled(rows, terms);
    const Matrix b = filled(terms, columns);
    expected.fill(0.0F);
    multiply_add(a, b, expected);
    expect_same(product(Product::Kind::kPlain, a, b), expected);
  }
  {
    const Matrix a = filled(terms, rows);
    const Matrix b = filled(terms, columns);
    multiply_transposed_left(a, b, expected);
    expect_same(product(Product::Kind::kLeftTransposed, a, b), expected);
  }
  {
    const Matrix a = filled(rows, terms);
    const Matrix b = filled(columns, terms);
    multiply_transposed_right(a, b, expected);
    expect_same(product(Product::Kind::kRightTransposed, a, b), expected);
  }
}

}  // namespace
}  // namespace ronde::trainer
