// SPDX-License-Identifier: Apache-2.0
// Layers and models: what they compute, how they start, what is refused.
#include "bindings/trainer/nn/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "bindings/trainer/nn/models.h"
#include "bindings/trainer/nn/network.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/operations.h"
#include "test/unit/trainer/tensor/numbers.h"

namespace ronde::trainer {
namespace {

TEST(Linear, WeightsDependOnSeedAndNameAndStayInBounds) {
  const auto weights = [](const char* name, std::uint64_t seed, Initialization initialization) {
    Linear layer(name, 50, 100, initialization, seed);
    const std::span<const float> values = layer.parameters()[0]->value();
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

// The loss of a model for fixed samples, and, where asked for, its gradients.
double loss_of(Tape& tape, const Network& model, const Shape& shape, bool backward) {
  const std::size_t samples = shape[0];
  std::vector<std::uint8_t> labels(samples);
  for (std::size_t i = 0; i < samples; ++i) labels[i] = static_cast<std::uint8_t>(i % 3);
  tape.begin();
  if (backward) {
    for (Parameter* const parameter : model.parameters()) parameter->begin_step();
  }
  const std::vector<float> input = numbers(shape, 3);
  const Loss loss = softmax_cross_entropy(model(tape.borrow(shape, input)), labels, 1);
  if (backward) tape.backward(loss.value);
  return loss.sum;
}

// Looks at some of each parameter's numbers: there may be millions.
void expect_model_gradients(const Network& model, const Shape& shape) {
  constexpr float kMove = 1.0F / 2048;  // so little that few kinks of ReLU are crossed
  Tape tape;
  loss_of(tape, model, shape, true);
  for (Parameter* const parameter : model.parameters()) {
    const std::size_t step = parameter->size() / 5 + 1;
    const std::vector<float> gradient(parameter->gradient().begin(), parameter->gradient().end());
    for (std::size_t i = step / 3; i < parameter->size(); i += step) {
      float& value = parameter->value()[i];
      const float kept = value;
      value = kept + kMove;
      const double above = loss_of(tape, model, shape, false);
      value = kept - kMove;
      const double below = loss_of(tape, model, shape, false);
      value = kept;
      EXPECT_NEAR((above - below) / (2.0 * kMove), gradient[i], 2e-2)
          << parameter->name() << " value " << i;
    }
  }
}

TEST(Models, GradientsMatchFiniteDifferences) {
  const auto mlp = make_mlp(6, 8, 3, 11);
  expect_model_gradients(*mlp, {4, 6});
  const auto cnn = make_cnn({.classes = 3}, 1);
  expect_model_gradients(*cnn, {2, 1, 28, 28});
}

// Two branches of which one skips a layer.
class Branches {
 public:
  Tensor operator()(const Tensor& input) {
    const Tensor hidden = relu(first_(input));
    return last_(concat(std::array{hidden + relu(second_(hidden)), hidden}, 1));
  }
  [[nodiscard]] std::vector<Parameter*> parameters() {
    std::vector<Parameter*> all;
    for (Linear* const layer : {&first_, &second_, &last_}) {
      for (Parameter* const parameter : layer->parameters()) all.push_back(parameter);
    }
    return all;
  }

 private:
  Linear first_{"first", 6, 5, Initialization::kHe, 1};
  Linear second_{"second", 5, 5, Initialization::kHe, 1};
  Linear last_{"last", 10, 3, Initialization::kGlorot, 1};
};

TEST(Models, AClassOfTheUsersIsAModel) {
  Branches branches;
  const Network model(branches);
  EXPECT_EQ(model.parameters().size(), 6U);
  expect_model_gradients(model, {4, 6});
}

TEST(Models, TheCnnHasEightMebibytesInTenTensors) {
  const auto cnn = make_cnn({}, 1);
  const Network model(*cnn);
  std::size_t bytes = 0;
  for (const Parameter* const parameter : model.parameters()) bytes += parameter->size() * 4;
  EXPECT_EQ(model.parameters().size(), 10U);
  EXPECT_GE(bytes, std::size_t{8} << 20);
  const auto normalised = make_cnn({.batch_norm = true}, 1);
  EXPECT_EQ(Network(*normalised).parameters().size(), 16U);
  EXPECT_EQ(Network(*normalised).statistics().size(), 6U);
}

TEST(Models, NoSamplesGiveGradientsOfZeros) {
  for (const bool normal : {false, true}) {
    const auto cnn = make_cnn({.batch_norm = normal}, 1);
    const Network model(*cnn);
    for (Parameter* const one : model.parameters()) std::ranges::fill(one->gradient(), 1.0F);
    Tape tape;
    loss_of(tape, model, {0, 1, 28, 28}, true);
    for (const Parameter* const parameter : model.parameters()) {
      EXPECT_THAT(parameter->gradient(), testing::Each(0.0F)) << parameter->name();
    }
  }
}

TEST(Network, RefusesNamesThatAreThereTwice) {
  Layers model;
  model.add<Linear>("fc", 2U, 2U, Initialization::kHe, 1U);
  model.add<Linear>("fc", 2U, 2U, Initialization::kHe, 1U);
  EXPECT_THROW(Network{model}, TrainerError);
}

TEST(Network, HashesTheBytesOfAllParameters) {
  const auto one = make_mlp(2, 3, 2, 1);
  const auto same = make_mlp(2, 3, 2, 1);
  const std::string hash = Network(*one).parameter_hash();
  EXPECT_EQ(hash.size(), 16U);
  EXPECT_EQ(Network(*same).parameter_hash(), hash);
  same->parameters()[3]->value()[1] += 1e-6F;
  EXPECT_NE(Network(*same).parameter_hash(), hash);
}

TEST(Layers, ShapesThatDoNotFitNameBothLayers) {
  Layers model;
  model.add<Linear>("fc1", 6U, 5U, Initialization::kHe, 1U);
  model.add<Applied>(relu);
  model.add<Linear>("fc2", 4U, 2U, Initialization::kHe, 1U);
  Tape tape;
  try {
    (void)model(tape.constant({2, 6}, numbers({2, 6}, 1)));
    FAIL() << "no error";
  } catch (const TrainerError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("fc2/weight (4 x 2)"));
    EXPECT_THAT(error.what(), testing::HasSubstr("2 x 5"));
  }
}

}  // namespace
}  // namespace ronde::trainer
