// SPDX-License-Identifier: Apache-2.0
// Losses at the edges of numbers and batches, and what they refuse; values and gradients are
// compared with PyTorch's (test/python/core).
#include "bindings/trainer/tensor/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/operations.h"
#include "test/unit/trainer/tensor/numbers.h"

namespace ronde::trainer {
namespace {

TEST(Losses, ASampleWithANanIsNotClassifiedCorrectly) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Tape tape;
  const Tensor rows = tape.constant({3, 2}, std::array{kNan, 1.F, 1.F, kNan, 1.F, 0.F});
  EXPECT_EQ(softmax_cross_entropy(rows, std::array<std::uint8_t, 3>{0, 0, 0}, 1).correct, 1U);
  const Tensor logits = tape.constant({3}, std::array{kNan, kNan, -1.F});
  EXPECT_EQ(binary_cross_entropy(logits, std::array<std::uint8_t, 3>{0, 1, 0}, 1).correct, 1U);
}

TEST(BinaryCrossEntropy, NeverOverflows) {
  Tape tape;
  const Tensor logits = tape.constant({4}, std::array{1000.F, -1000.F, 1000.F, 0.5F});
  const Loss loss = binary_cross_entropy(logits, std::array<std::uint8_t, 4>{1, 0, 0, 1}, 1);
  EXPECT_NEAR(loss.sum, 1000.0 + std::log1p(std::exp(-0.5)), 1e-6);
  EXPECT_EQ(loss.correct, 3U);
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

TEST(Losses, MayBeScaledAfterwards) {
  Tape tape;
  tape.begin();
  const Tensor outputs = tape.variable({2}, std::array{1.F, 2.F});
  tape.backward(mean_squared_error(outputs, std::array{0.F, 0.F}, 1).value * 3.0F);
  EXPECT_EQ(tape.gradient(outputs), (std::vector{6.F, 12.F}));
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
