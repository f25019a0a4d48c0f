// SPDX-License-Identifier: Apache-2.0
// Losses: values, gradients, counts, and what they refuse.
#include "bindings/trainer/tensor/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/tensor/gradients.h"

namespace ronde::trainer {
namespace {

TEST(SoftmaxCrossEntropy, ComputesSumsAndCounts) {
  Tape tape;
  const Tensor logits = tape.constant({2, 2}, std::array{0.F, 0.F, 1000.F, 0.F});
  const Loss loss = softmax_cross_entropy(logits, std::array<std::uint8_t, 2>{1, 0}, 8);
  EXPECT_NEAR(loss.sum, std::log(2.0), 1e-12);
  EXPECT_EQ(loss.correct, 1U);
  EXPECT_EQ(loss.samples, 2U);
  EXPECT_NEAR(loss.value.item(), std::log(2.0) / 8, 1e-7);
}

TEST(Losses, ASampleWithANanIsNotClassifiedCorrectly) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Tape tape;
  const Tensor rows = tape.constant({3, 2}, std::array{kNan, 1.F, 1.F, kNan, 1.F, 0.F});
  EXPECT_EQ(softmax_cross_entropy(rows, std::array<std::uint8_t, 3>{0, 0, 0}, 1).correct, 1U);
  const Tensor logits = tape.constant({3}, std::array{kNan, kNan, -1.F});
  EXPECT_EQ(binary_cross_entropy(logits, std::array<std::uint8_t, 3>{0, 1, 0}, 1).correct, 1U);
}

TEST(Losses, Gradients) {
  const std::array<std::uint8_t, 3> classes{2, 0, 3};
  expect_gradients({{{3, 4}, numbers({3, 4}, 1)}}, [&](std::span<const Tensor> x) {
    return softmax_cross_entropy(x[0], classes, 2).value;
  });
  const std::array<std::uint8_t, 3> two{1, 0, 1};
  expect_gradients({{{3, 1}, numbers({3, 1}, 2)}}, [&](std::span<const Tensor> x) {
    return binary_cross_entropy(x[0], two, 2).value;
  });
  const std::vector<float> targets = numbers({3, 2}, 3);
  expect_gradients({{{3, 2}, numbers({3, 2}, 4)}}, [&](std::span<const Tensor> x) {
    return mean_squared_error(x[0], targets, 2).value;
  });
  // A loss that is scaled afterwards.
  expect_gradients({{{3, 4}, numbers({3, 4}, 1)}}, [&](std::span<const Tensor> x) {
    return softmax_cross_entropy(x[0], classes, 2).value * 3.0F;
  });
}

TEST(BinaryCrossEntropy, NeverOverflows) {
  Tape tape;
  const Tensor logits = tape.constant({4}, std::array{1000.F, -1000.F, 1000.F, 0.5F});
  const Loss loss = binary_cross_entropy(logits, std::array<std::uint8_t, 4>{1, 0, 0, 1}, 1);
  EXPECT_NEAR(loss.sum, 1000.0 + std::log1p(std::exp(-0.5)), 1e-6);
  EXPECT_EQ(loss.correct, 3U);
}

TEST(MeanSquaredError, IsAMeanOverTheElementsOfASample) {
  Tape tape;
  const Tensor prediction = tape.constant({2, 2}, std::array{1.F, 2.F, 3.F, 4.F});
  const Loss loss = mean_squared_error(prediction, std::array{0.F, 0.F, 3.F, 2.F}, 2);
  EXPECT_DOUBLE_EQ(loss.sum, 2.5 + 2.0);
  EXPECT_FLOAT_EQ(loss.value.item(), 2.25F);
}

TEST(Losses, OfNoSamplesAreZero) {
  Tape tape;
  const Loss loss = softmax_cross_entropy(tape.constant({0, 3}, {}), {}, 5);
  EXPECT_EQ(loss.sum, 0.0);
  EXPECT_EQ(loss.value.item(), 0.0F);
}

TEST(Losses, AreDividedByWhatTheirPassSays) {
  Tape tape;
  for (const std::size_t samples : {0U, 3U}) {  // 0: it does not say, and they are sums
    tape.begin({.global_batch = samples});
    const Tensor outputs = tape.variable({2}, std::array{1.F, 2.F});
    const Loss loss = mean_squared_error(outputs, std::array{0.F, 0.F});
    EXPECT_EQ(loss.sum, 5.0);
    EXPECT_EQ(loss.global_batch, samples);
    EXPECT_EQ(loss.value.item(), samples == 0 ? 5.0F : 5.0F / 3.0F);
    tape.backward(loss.value);
    EXPECT_EQ(tape.gradient(outputs)[0], samples == 0 ? 2.0F : 2.0F / 3.0F);
  }
}

TEST(Losses, RefuseTargetsThatDoNotFit) {
  Tape tape;
  const Tensor logits = tape.constant({2, 2}, std::array{0.F, 0.F, 1.F, 0.F});
  EXPECT_THROW((void)softmax_cross_entropy(logits, std::array<std::uint8_t, 1>{0}, 1),
               TrainerError);
  EXPECT_THROW((void)softmax_cross_entropy(logits, std::array<std::uint8_t, 2>{0, 2}, 1),
               TrainerError);
  EXPECT_EQ(refusal([&] { (void)softmax_cross_entropy(logits, std::array{0, -1}, 1); }),
            "label -1 in row 1 of a replica's part of a batch has no output: give the model an "
            "output per class");
  EXPECT_THROW((void)binary_cross_entropy(logits, std::array<std::uint8_t, 4>{0, 1, 2, 0}, 1),
               TrainerError);
  EXPECT_THROW((void)mean_squared_error(logits, std::array{0.F}, 1), TrainerError);
  EXPECT_EQ(refusal([&] {
              (void)binary_cross_entropy(logits, std::array<std::uint8_t, 4>{0, 1, 1, 0}, 1);
            }),
            "binary_cross_entropy: 2 x 2 is not one number for each sample: give {samples} or "
            "{samples, 1}");
}

}  // namespace
}  // namespace ronde::trainer
