// SPDX-License-Identifier: Apache-2.0
// A whole model: its gradients, its hash, and steps of SGD computed by hand.
#include "bindings/trainer/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bindings/trainer/hash.h"
#include "bindings/trainer/loss.h"
#include "bindings/trainer/random.h"
#include "bindings/trainer/sgd.h"

namespace ronde::trainer {
namespace {

TEST(Model, GradientsMatchFiniteDifferences) {
  Model model = make_mlp(6, 8, 3, 11);
  Matrix input(4, 6);
  Generator generator(1);
  for (float& value : input.values()) value = generator.uniform(-1.0F, 1.0F);
  const std::vector<std::uint8_t> labels{0, 2, 1, 2};
  Matrix gradient;
  softmax_cross_entropy(model.forward(input), labels, 1, &gradient);
  model.backward(input, gradient, [](const Parameter&) {});
  constexpr float kMove = 1.0F / 1024;
  for (Parameter* parameter : model.parameters()) {
    for (std::size_t i = 0; i < parameter->value.size(); ++i) {
      float& value = parameter->value.data()[i];
      const float kept = value;
      value = kept + kMove;
      const double above = softmax_cross_entropy(model.forward(input), labels, 1, nullptr).loss;
      value = kept - kMove;
      const double below = softmax_cross_entropy(model.forward(input), labels, 1, nullptr).loss;
      value = kept;
      EXPECT_NEAR((above - below) / (2.0 * kMove), parameter->gradient.data()[i], 2e-3)
          << parameter->name << " value " << i;
    }
  }
}

TEST(Model, ParametersAreNumberedAndGradientsComeLastLayerFirst) {
  Model model = make_mlp(2, 3, 2, 1);
  std::vector<std::string> names;
  for (const Parameter* parameter : model.parameters()) {
    EXPECT_EQ(parameter->index, names.size());
    names.push_back(parameter->name);
  }
  EXPECT_THAT(names, testing::ElementsAre("fc1/weight", "fc1/bias", "fc2/weight", "fc2/bias"));
  const Matrix input(1, 2);
  model.forward(input);
  std::vector<std::string> ready;
  model.backward(input, Matrix(1, 2),
                 [&](const Parameter& parameter) { ready.push_back(parameter.name); });
  EXPECT_THAT(ready, testing::ElementsAre("fc2/weight", "fc2/bias", "fc1/weight", "fc1/bias"));
}

TEST(Model, HashCoversEveryParameter) {
  Model model = make_mlp(2, 3, 2, 1);
  const std::string hash = model.parameter_hash();
  EXPECT_THAT(hash, testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(hash.size(), 16U);
  EXPECT_EQ(hash, make_mlp(2, 3, 2, 1).parameter_hash());
  for (Parameter* parameter : model.parameters()) {
    float& last = parameter->value.data()[parameter->value.size() - 1];
    const float kept = last;
    last += 1.0F;
    EXPECT_NE(model.parameter_hash(), hash) << parameter->name;
    last = kept;
  }
}

TEST(Hash, IsFnv1a) {
  Hash hash;
  EXPECT_EQ(hash.value(), 0xcbf29ce484222325U);
  hash.add(std::as_bytes(std::span("foobar", 6)));
  EXPECT_EQ(hash.value(), 0x85944171f73967e8U);
}

// One weight, whose gradient is set by hand.
struct OneWeight {
  OneWeight() {
    model.add<Dense>("fc", 1U, 1U, Initialization::kHe, 1U);
    weight().value.fill(1.0F);
  }
  Parameter& weight() { return *model.parameters()[0]; }
  void step(Sgd& sgd, float gradient) {
    weight().gradient.fill(gradient);
    sgd.step();
  }
  Model model;
};

TEST(Sgd, WithoutMomentumSubtractsTheGradient) {
  OneWeight one;
  Sgd sgd(one.model, 0.5, 0.0);
  EXPECT_TRUE(sgd.velocities().empty());
  one.step(sgd, 1.0F);
  EXPECT_EQ(one.weight().value.data()[0], 0.5F);
  one.step(sgd, -2.0F);
  EXPECT_EQ(one.weight().value.data()[0], 1.5F);
}

TEST(Sgd, WithMomentumFollowsTheSequenceComputedByHand) {
  OneWeight one;
  Sgd sgd(one.model, 0.5, 0.5);
  one.step(sgd, 1.0F);  // velocity 1
  EXPECT_EQ(one.weight().value.data()[0], 0.5F);
  one.step(sgd, 1.0F);  // velocity 1.5
  EXPECT_EQ(one.weight().value.data()[0], -0.25F);
  one.step(sgd, 0.0F);  // velocity 0.75
  EXPECT_EQ(one.weight().value.data()[0], -0.625F);
  one.step(sgd, -1.0F);  // velocity -0.625
  EXPECT_EQ(one.weight().value.data()[0], -0.3125F);
  EXPECT_EQ(sgd.velocities()[0].data()[0], -0.625F);
}

}  // namespace
}  // namespace ronde::trainer
