// SPDX-License-Identifier: Apache-2.0
// Softmax cross-entropy: values, gradient, and what does not depend on how a batch is spread.
#include "bindings/trainer/loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bindings/trainer/errors.h"
#include "bindings/trainer/random.h"

namespace ronde::trainer {
namespace {

Matrix random_logits(std::size_t rows, std::size_t columns) {
  Matrix logits(rows, columns);
  Generator generator(5);
  for (float& value : logits.values()) value = generator.uniform(-3.0F, 3.0F);
  return logits;
}

TEST(SoftmaxCrossEntropy, EqualLogitsCostTheLogarithmOfTheClasses) {
  const Matrix logits(2, 10);
  const std::vector<std::uint8_t> labels{0, 9};
  const LossSums sums = softmax_cross_entropy(logits, labels, 2, nullptr);
  EXPECT_DOUBLE_EQ(sums.loss, 2.0 * std::log(10.0));
  EXPECT_EQ(sums.correct, 1);  // the first of equal logits wins
}

TEST(SoftmaxCrossEntropy, HugeLogitsStayFinite) {
  Matrix logits(1, 2);
  logits.data()[0] = 3e38F;
  logits.data()[1] = -3e38F;
  Matrix gradient;
  const std::vector<std::uint8_t> labels{0};
  const LossSums sums = softmax_cross_entropy(logits, labels, 1, &gradient);
  EXPECT_EQ(sums.loss, 0.0);
  EXPECT_THAT(gradient.values(), testing::ElementsAre(0.0F, 0.0F));
}

TEST(SoftmaxCrossEntropy, GradientMatchesFiniteDifferences) {
  Matrix logits = random_logits(3, 4);
  const std::vector<std::uint8_t> labels{1, 3, 0};
  constexpr std::size_t kGlobalBatch = 7;
  constexpr float kMove = 1.0F / 256;
  Matrix gradient;
  softmax_cross_entropy(logits, labels, kGlobalBatch, &gradient);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float value = logits.data()[i];
    logits.data()[i] = value + kMove;
    const double above = softmax_cross_entropy(logits, labels, 1, nullptr).loss;
    logits.data()[i] = value - kMove;
    const double below = softmax_cross_entropy(logits, labels, 1, nullptr).loss;
    logits.data()[i] = value;
    EXPECT_NEAR((above - below) / (2.0 * kMove) / kGlobalBatch, gradient.data()[i], 1e-6);
  }
}

TEST(SoftmaxCrossEntropy, PartsOfABatchAddUpToTheBatch) {
  const Matrix logits = random_logits(5, 4);
  const std::vector<std::uint8_t> labels{1, 3, 0, 2, 2};
  Matrix gradient;
  const LossSums whole = softmax_cross_entropy(logits, labels, 5, &gradient);
  double loss = 0.0;
  std::int64_t correct = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    Matrix part(1, 4);
    std::copy(logits.row(i).begin(), logits.row(i).end(), part.data());
    Matrix part_gradient;
    const LossSums sums =
        softmax_cross_entropy(part, std::span(labels).subspan(i, 1), 5, &part_gradient);
    loss += sums.loss;
    correct += sums.correct;
    EXPECT_THAT(part_gradient.values(), testing::ElementsAreArray(gradient.row(i)));
  }
  EXPECT_DOUBLE_EQ(loss, whole.loss);
  EXPECT_EQ(correct, whole.correct);
}

TEST(SoftmaxCrossEntropy, RejectsLabelsThatDoNotFit) {
  const Matrix logits(1, 2);
  EXPECT_THROW(softmax_cross_entropy(logits, std::vector<std::uint8_t>{2}, 1, nullptr),
               TrainerError);
  EXPECT_THROW(softmax_cross_entropy(logits, std::vector<std::uint8_t>{}, 1, nullptr),
               TrainerError);
}

}  // namespace
}  // namespace ronde::trainer
