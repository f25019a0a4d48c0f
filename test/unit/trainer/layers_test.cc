// SPDX-License-Identifier: Apache-2.0
// The gradient of every layer against finite differences.
#include "bindings/trainer/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bindings/trainer/random.h"

namespace ronde::trainer {
namespace {

Matrix random_matrix(std::size_t rows, std::size_t columns, std::uint64_t seed) {
  Matrix matrix(rows, columns);
  Generator generator(seed);
  for (float& value : matrix.values()) value = generator.uniform(-1.0F, 1.0F);
  return matrix;
}

// A loss whose gradient by the output is `factors`.
double weighted_sum(const Layer& layer, const Matrix& input, const Matrix& factors) {
  Matrix output;
  layer.forward(input, output);
  double sum = 0.0;
  for (std::size_t i = 0; i < output.size(); ++i) {
    sum += static_cast<double>(output.data()[i]) * factors.data()[i];
  }
  return sum;
}

// Moves every value of `place` by a little and compares the change of the loss with `gradient`.
void expect_gradient(const Layer& layer, const Matrix& input, const Matrix& factors, Matrix& place,
                     const Matrix& gradient) {
  constexpr float kMove = 1.0F / 64;
  ASSERT_EQ(place.size(), gradient.size());
  for (std::size_t i = 0; i < place.size(); ++i) {
    const float value = place.data()[i];
    place.data()[i] = value + kMove;
    const double above = weighted_sum(layer, input, factors);
    place.data()[i] = value - kMove;
    const double below = weighted_sum(layer, input, factors);
    place.data()[i] = value;
    EXPECT_NEAR((above - below) / (2.0 * kMove), gradient.data()[i], 1e-4) << "value " << i;
  }
}

TEST(Dense, ComputesInputTimesWeightPlusBias) {
  Dense dense("fc", 2, 2, Initialization::kHe, 1);
  const std::vector<Parameter*> parameters = dense.parameters();
  const float weight[] = {1, 2, 3, 4};
  std::copy(std::begin(weight), std::end(weight), parameters[0]->value.data());
  parameters[1]->value.data()[0] = 10;
  parameters[1]->value.data()[1] = 20;
  Matrix input(1, 2);
  input.data()[0] = 5;
  input.data()[1] = 6;
  Matrix output;
  dense.forward(input, output);
  EXPECT_THAT(output.values(), testing::ElementsAre(5 + 18 + 10, 10 + 24 + 20));
}

TEST(Dense, GradientsMatchFiniteDifferences) {
  Dense dense("fc", 5, 3, Initialization::kHe, 7);
  Matrix input = random_matrix(4, 5, 1);
  const Matrix factors = random_matrix(4, 3, 2);
  Matrix output;
  dense.forward(input, output);
  Matrix input_gradient;
  dense.backward(input, output, factors, &input_gradient, [](const Parameter&) {});
  expect_gradient(dense, input, factors, input, input_gradient);
  for (Parameter* parameter : dense.parameters()) {
    expect_gradient(dense, input, factors, parameter->value, parameter->gradient);
  }
}

TEST(Dense, AnnouncesEachGradientOnceWhenItIsFinal) {
  Dense dense("fc", 5, 3, Initialization::kHe, 7);
  const Matrix input = random_matrix(4, 5, 1);
  const Matrix factors = random_matrix(4, 3, 2);
  Matrix output;
  dense.forward(input, output);
  std::vector<std::string> announced;
  std::vector<std::vector<float>> at_announcement;
  Matrix input_gradient;
  dense.backward(input, output, factors, &input_gradient, [&](const Parameter& parameter) {
    announced.push_back(parameter.name);
    const auto values = parameter.gradient.values();
    at_announcement.emplace_back(values.begin(), values.end());
  });
  EXPECT_THAT(announced, testing::ElementsAre("fc/weight", "fc/bias"));
  for (std::size_t i = 0; i < announced.size(); ++i) {
    EXPECT_THAT(dense.parameters()[i]->gradient.values(),
                testing::ElementsAreArray(at_announcement[i]));
  }
}

TEST(Dense, NoSamplesGiveZeroGradients) {
  Dense dense("fc", 5, 3, Initialization::kHe, 7);
  for (Parameter* parameter : dense.parameters()) parameter->gradient.fill(1.0F);
  const Matrix input(0, 5);
  const Matrix factors(0, 3);
  Matrix output;
  dense.forward(input, output);
  EXPECT_EQ(output.rows(), 0U);
  Matrix input_gradient;
  int announced = 0;
  dense.backward(input, output, factors, &input_gradient, [&](const Parameter&) { ++announced; });
  EXPECT_EQ(announced, 2);
  for (const Parameter* parameter : dense.parameters()) {
    EXPECT_THAT(parameter->gradient.values(), testing::Each(0.0F));
  }
}

TEST(Dense, WeightsDependOnSeedAndNameAndStayInBounds) {
  const auto weights = [](const char* name, std::uint64_t seed, Initialization initialization) {
    Dense dense(name, 50, 100, initialization, seed);
    const auto values = dense.parameters()[0]->value.values();
    return std::vector<float>(values.begin(), values.end());
  };
  const auto he = weights("fc1", 1, Initialization::kHe);
  EXPECT_EQ(he, weights("fc1", 1, Initialization::kHe));
  EXPECT_NE(he, weights("fc1", 2, Initialization::kHe));
  EXPECT_NE(he, weights("fc2", 1, Initialization::kHe));
  const auto largest = [](const std::vector<float>& values) {
    float most = 0;
    for (const float value : values) most = std::max(most, std::fabs(value));
    return most;
  };
  EXPECT_LE(largest(he), std::sqrt(6.0F / 50));
  EXPECT_GT(largest(he), 0.99F * std::sqrt(6.0F / 50));
  const auto glorot = weights("fc1", 1, Initialization::kGlorot);
  EXPECT_LE(largest(glorot), std::sqrt(6.0F / 150));
  EXPECT_GT(largest(glorot), 0.99F * std::sqrt(6.0F / 150));
}

TEST(Relu, ForwardAndGradientMatchFiniteDifferences) {
  Relu relu;
  Matrix input = random_matrix(4, 6, 3);
  // Away from the kink, where there is no derivative.
  for (float& value : input.values()) value += value > 0.0F ? 0.1F : -0.1F;
  const Matrix factors = random_matrix(4, 6, 4);
  Matrix output;
  relu.forward(input, output);
  for (std::size_t i = 0; i < input.size(); ++i) {
    EXPECT_EQ(output.data()[i], std::max(input.data()[i], 0.0F));
  }
  Matrix input_gradient;
  relu.backward(input, output, factors, &input_gradient, [](const Parameter&) {});
  expect_gradient(relu, input, factors, input, input_gradient);
}

}  // namespace
}  // namespace ronde::trainer
