// SPDX-License-Identifier: Apache-2.0
// Products of matrices that are too large for the comparison with PyTorch (test/python/core),
// batches without samples, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "test/unit/trainer/tensor/layouts.h"

namespace ronde::trainer {
namespace {

// Sums in double precision; large enough for all ways to multiply.
TEST(Products, ADenseLayerIsWhatPlainLoopsGiveInAllDirections) {
  for (const auto& [samples, inputs, outputs] :
       {std::array<std::size_t, 3>{1, 7, 5}, {2, 784, 10}, {17, 30, 33}, {17, 700, 300}}) {
    Tape tape;
    tape.begin();
    const std::vector<float> x = numbers({samples, inputs}, 1);
    const std::vector<float> w = numbers({inputs, outputs}, 2);
    const std::vector<float> b = numbers({outputs}, 3);
    const std::vector<float> slope = numbers({samples, outputs}, 4);
    std::vector<double> y(samples * outputs, 0.0);
    std::vector<double> dx(x.size(), 0.0);
    std::vector<double> dw(w.size(), 0.0);
    std::vector<double> db(b.size(), 0.0);
    for (std::size_t i = 0; i < samples; ++i) {
      for (std::size_t j = 0; j < outputs; ++j) {
        const double down = slope[i * outputs + j];
        y[i * outputs + j] += b[j];
        db[j] += down;
        for (std::size_t k = 0; k < inputs; ++k) {
          y[i * outputs + j] += double{x[i * inputs + k]} * double{w[k * outputs + j]};
          dx[i * inputs + k] += down * double{w[k * outputs + j]};
          dw[k * outputs + j] += down * double{x[i * inputs + k]};
        }
      }
    }
    const Tensor input = tape.variable({samples, inputs}, x);
    const Tensor weights = tape.variable({inputs, outputs}, w);
    const Tensor bias = tape.variable({outputs}, b);
    const Tensor output = linear(input, weights, bias);
    tape.backward(sum(output * tape.constant(output.shape(), slope)));
    using testing::DoubleNear;
    using testing::Pointwise;
    EXPECT_THAT(output.values(), Pointwise(DoubleNear(1e-4), y));
    EXPECT_THAT(tape.gradient(input), Pointwise(DoubleNear(1e-4), dx));
    EXPECT_THAT(tape.gradient(weights), Pointwise(DoubleNear(1e-4), dw));
    EXPECT_THAT(tape.gradient(bias), Pointwise(DoubleNear(1e-4), db));
  }
}

TEST(Products, ADenseLayerTakesOnlyTheGradientThatIsWanted) {
  Tape tape;
  tape.begin();
  const std::vector<float> some = numbers({12}, 1);
  const Tensor bias = tape.variable({3}, std::vector<float>(3, 0.0F));
  const Tensor result =
      linear(tape.constant({4, 3}, some), tape.constant({3, 3}, std::span(some).first(9)), bias);
  tape.backward(sum(result));
  EXPECT_EQ(tape.gradient(bias), std::vector<float>(3, 4.0F));
}

TEST(Products, ABatchWithoutSamplesGivesGradientsOfZero) {
  Tape tape;
  tape.begin();
  const Tensor weights = tape.variable({3, 2}, numbers({6}, 1));
  const Tensor bias = tape.variable({2}, numbers({2}, 2));
  const Tensor product = tape.variable({2, 4}, numbers({8}, 3));
  const Tensor result = matmul(linear(tape.constant({0, 3}, {}), weights, bias), product);
  EXPECT_EQ(result.shape(), (Shape{0, 4}));
  tape.backward(sum(result));
  EXPECT_EQ(tape.gradient(weights), std::vector<float>(6, 0.0F));
  EXPECT_EQ(tape.gradient(bias), std::vector<float>(2, 0.0F));
  EXPECT_EQ(tape.gradient(product), std::vector<float>(8, 0.0F));
}

TEST(Products, ShapesThatDoNotFitAreNamedBoth) {
  Tape tape;
  tape.begin();
  Parameter weights("fc1/weight", {784, 128});
  Parameter bias("fc1/bias", {127});
  const Tensor images = tape.constant({2, 100}, numbers({200}, 1));
  const std::string wrong =
      refusal([&] { static_cast<void>(linear(images, tape.use(weights), tape.use(bias))); });
  EXPECT_NE(wrong.find("2 x 100"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("fc1/weight (784 x 128)"), std::string::npos) << wrong;
  const Tensor right = tape.constant({2, 784}, numbers({2 * 784}, 1));
  EXPECT_NE(refusal([&] {
              static_cast<void>(linear(right, tape.use(weights), tape.use(bias)));
            }).find("fc1/bias (127) does not fit fc1/weight (784 x 128)"),
            std::string::npos);
  EXPECT_NE(refusal([&] { static_cast<void>(matmul(images, images)); }).find("matmul: 2 x 100"),
            std::string::npos);
  EXPECT_NE(refusal([&] { static_cast<void>(matmul(images, tape.use(bias))); }).find("1 sides"),
            std::string::npos);
}

}  // namespace
}  // namespace ronde::trainer
