// SPDX-License-Identifier: Apache-2.0
// Batch normalisation: the same numbers whether a batch lies on one rank or on several, and what is
// refused. Results and gradients are compared with PyTorch's (test/python/core).
#include "bindings/trainer/tensor/normalization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/tensor/layouts.h"

namespace ronde::trainer {
namespace {

constexpr float kEpsilon = 1e-3F;

// Adds up over the threads that are the ranks of a test, in the order of ranks.
class Ranks {
 public:
  explicit Ranks(std::size_t size)
      : numbers_(size), meeting_(static_cast<std::ptrdiff_t>(size)), calls_(size, 0) {}

  SumOverRanks of(std::size_t rank) {
    return [this, rank](std::span<double> values) {
      ++calls_[rank];
      numbers_[rank].assign(values.begin(), values.end());
      meeting_.arrive_and_wait();
      for (std::size_t i = 0; i < values.size(); ++i) {
        double sum = 0.0;
        for (const std::vector<double>& each : numbers_) sum += each.at(i);
        values[i] = sum;
      }
      meeting_.arrive_and_wait();
    };
  }
  [[nodiscard]] int calls(std::size_t rank) const { return calls_[rank]; }

 private:
  std::vector<std::vector<double>> numbers_;
  std::barrier<> meeting_;
  std::vector<int> calls_;
};

const SumOverRanks kAlone = [](std::span<double>) {};

struct Statistics {
  std::vector<double> mean;
  std::vector<double> variance;
};

// By the definition, in double precision.
Statistics statistics_of(const Given& images) {
  const std::size_t channels = images.shape[1];
  const std::size_t inner = images.values.size() / images.shape[0] / channels;
  const double count = static_cast<double>(images.shape[0] * inner);
  Statistics all{std::vector<double>(channels, 0.0), std::vector<double>(channels, 0.0)};
  for (std::size_t i = 0; i < images.values.size(); ++i) {
    all.mean[i / inner % channels] += double{images.values[i]} / count;
  }
  for (std::size_t i = 0; i < images.values.size(); ++i) {
    const std::size_t channel = i / inner % channels;
    const double distance = double{images.values[i]} - all.mean[channel];
    all.variance[channel] += distance * distance / count;
  }
  return all;
}

// One rank's part of a batch: outputs, gradients and statistics.
struct Part {
  std::vector<float> output;
  std::vector<std::vector<float>> gradients;
  std::vector<float> mean;
  double count = 0.0;
};

Part normalize_part(const std::vector<Given>& whole, std::size_t first, std::size_t samples,
                    const std::vector<float>& weights, const SumOverRanks& sum_over) {
  const std::size_t each = whole[0].values.size() / whole[0].shape[0];
  Shape shape = whole[0].shape;
  shape[0] = samples;
  Tape tape;
  tape.begin();
  const Tensor images =
      tape.variable(shape, std::span(whole[0].values).subspan(first * each, samples * each));
  const Tensor scale = tape.variable(whole[1].shape, whole[1].values);
  const Tensor shift = tape.variable(whole[2].shape, whole[2].values);
  const BatchNormalized made = batch_norm_over_ranks(images, scale, shift, kEpsilon, sum_over);
  const Tensor weight =
      tape.constant(shape, std::span(weights).subspan(first * each, samples * each));
  tape.backward(sum(made.output * weight));
  const std::span<const float> output = made.output.values();
  const std::span<const float> mean = made.mean.plain();
  return {{output.begin(), output.end()},
          {tape.gradient(images), tape.gradient(scale), tape.gradient(shift)},
          {mean.begin(), mean.end()},
          made.count};
}

TEST(Normalization, RanksWithUnequalPartsOfABatchDoWhatOneRankWithAllOfItDoes) {
  const std::vector<Given> whole{random_input({9, 4, 3, 3}, 1), random_input({4}, 2),
                                 random_input({4}, 3)};
  const std::vector<float> weights = numbers(whole[0].shape, 7);
  const Part alone = normalize_part(whole, 0, 9, weights, kAlone);
  const std::vector<std::size_t> samples{4, 0, 5};  // one rank has none
  Ranks ranks(samples.size());
  std::vector<Part> parts(samples.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0, first = 0; rank < samples.size(); first += samples[rank++]) {
    threads.emplace_back([&, rank, first] {
      parts[rank] = normalize_part(whole, first, samples[rank], weights, ranks.of(rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
  Part together;
  together.gradients = {{}, std::vector<float>(4, 0.0F), std::vector<float>(4, 0.0F)};
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const Part& part = parts[rank];
    EXPECT_EQ(ranks.calls(rank), 3);
    EXPECT_EQ(part.count, alone.count);
    EXPECT_EQ(part.mean, parts[0].mean);
    together.output.insert(together.output.end(), part.output.begin(), part.output.end());
    together.gradients[0].insert(together.gradients[0].end(), part.gradients[0].begin(),
                                 part.gradients[0].end());
    for (const std::size_t i : {1U, 2U}) {
      for (std::size_t j = 0; j < 4; ++j) together.gradients[i][j] += part.gradients[i][j];
    }
  }
  using testing::FloatNear;
  using testing::Pointwise;
  EXPECT_THAT(together.output, Pointwise(FloatNear(1e-5F), alone.output));
  for (const std::size_t i : {0U, 1U, 2U}) {
    EXPECT_THAT(together.gradients[i], Pointwise(FloatNear(2e-5F), alone.gradients[i]));
  }
}

TEST(Normalization, AMeanFarFromZeroTakesNoDigitsFromTheVariance) {
  Given far = random_input({8, 2, 4, 4}, 1);
  for (float& number : far.values) number += 1000.0F;
  const Statistics expected = statistics_of(far);
  Tape tape;
  tape.begin();
  const Tensor ones = tape.variable({2}, std::vector<float>(2, 1.0F));
  const BatchNormalized made =
      batch_norm_over_ranks(tape.variable(far.shape, far.values), ones, ones, kEpsilon, kAlone);
  for (const std::size_t i : {0U, 1U}) {
    EXPECT_NEAR(made.variance.plain()[i], expected.variance[i], 1e-5);
  }
}

TEST(Normalization, ABatchWithoutSamplesHasZerosForStatisticsAndGradients) {
  for (const bool over_ranks : {false, true}) {
    Tape tape;
    tape.begin();
    const Tensor scale = tape.variable({2}, std::vector<float>(2, 1.0F));
    const Tensor shift = tape.variable({2}, std::vector<float>(2, 0.0F));
    const Tensor images = tape.variable({0, 2, 4, 4}, {});
    const BatchNormalized made = over_ranks
                                     ? batch_norm_over_ranks(images, scale, shift, kEpsilon, kAlone)
                                     : batch_norm(images, scale, shift, kEpsilon);
    EXPECT_EQ(made.count, 0.0);
    EXPECT_THAT(made.mean.plain(), testing::Each(0.0F));
    EXPECT_THAT(made.variance.plain(), testing::Each(0.0F));
    tape.backward(sum(made.output));
    EXPECT_THAT(tape.gradient(scale), testing::ElementsAre(0.0F, 0.0F));
    EXPECT_THAT(tape.gradient(shift), testing::ElementsAre(0.0F, 0.0F));
  }
}

TEST(Normalization, OfOneNumberPerChannelIsRefused) {
  Tape tape;
  tape.begin();
  Parameter scale("norm/scale", {2});
  const auto refused = [&](const Shape& shape, const SumOverRanks& sum_over) {
    const Tensor x = tape.constant(shape, std::vector<float>(elements_of(shape), 1.0F));
    const Tensor factors = tape.use(scale);
    return refusal([&] {
      if (sum_over) (void)batch_norm_over_ranks(x, factors, factors, kEpsilon, sum_over);
      if (!sum_over) (void)batch_norm(x, factors, factors, kEpsilon);
    });
  };
  constexpr const char* kWords =
      "batch_norm with norm/scale (2): expected more than 1 value per channel when training, got "
      "1 x 2";
  EXPECT_THAT(refused({1, 2}, {}), testing::StartsWith(kWords));
  EXPECT_THAT(refused({1, 2, 1, 1}, {}), testing::StartsWith(kWords));
  EXPECT_THAT(refused({1, 2}, kAlone), testing::StartsWith(kWords));
  const std::string none = "nothing was refused";
  EXPECT_EQ(refused({1, 2, 1, 2}, {}), none);
  EXPECT_EQ(refused({0, 2}, {}), none);
  EXPECT_EQ(refused({0, 2}, kAlone), none);
  // The other rank has a sample, too.
  EXPECT_EQ(refused({1, 2},
                    [](std::span<double> sums) {
                      for (double& one : sums) one *= 2.0;
                    }),
            none);
}

TEST(Normalization, ShapesThatDoNotFitAreNamedBoth) {
  Tape tape;
  tape.begin();
  const Tensor images = tape.constant({2, 3, 4, 4}, std::vector<float>(96));
  Parameter scale("norm/scale", {4});
  try {
    batch_norm(images, tape.use(scale), tape.use(scale), kEpsilon);
    FAIL() << "nothing was refused";
  } catch (const TrainerError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("batch_norm: 2 x 3 x 4 x 4 does not fit norm/scale (4)"));
  }
  const Tensor three = tape.constant({3}, std::vector<float>(3));
  EXPECT_THROW(batch_norm_as_given(images, three, three, kEpsilon, std::vector<float>(3),
                                   std::vector<float>(2)),
               TrainerError);
  EXPECT_THROW(batch_norm(tape.constant({2, 3, 4}, std::vector<float>(24)), three, three, kEpsilon),
               TrainerError);
}

}  // namespace
}  // namespace ronde::trainer
