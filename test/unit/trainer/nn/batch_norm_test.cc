// SPDX-License-Identifier: Apache-2.0
// The layer of batch normalisation: which statistics it uses, and how it follows those of batches.
#include "bindings/trainer/nn/batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::Pointwise;

constexpr std::array kBatch{1.0F, 10.0F, 3.0F, 10.0F, 5.0F, 40.0F, 7.0F, 40.0F};  // 4 x 2

TEST(BatchNorm, StartsAsTheIdentityOfStandardNumbers) {
  BatchNorm norm("norm1", 2);
  ASSERT_EQ(norm.parameters().size(), 2U);
  EXPECT_EQ(norm.parameters()[0]->name(), "norm1/scale");
  EXPECT_THAT(norm.parameters()[0]->value(), ElementsAre(1.0F, 1.0F));
  EXPECT_EQ(norm.parameters()[1]->name(), "norm1/shift");
  EXPECT_THAT(norm.parameters()[1]->value(), ElementsAre(0.0F, 0.0F));
  ASSERT_EQ(norm.statistics().size(), 2U);
  EXPECT_EQ(norm.statistics()[0].name, "norm1/mean");
  EXPECT_THAT(norm.statistics()[0].values, ElementsAre(0.0F, 0.0F));
  EXPECT_EQ(norm.statistics()[1].name, "norm1/variance");
  EXPECT_THAT(norm.statistics()[1].values, ElementsAre(1.0F, 1.0F));
}

TEST(BatchNorm, EvaluationUsesTheRunningStatisticsAndLeavesThem) {
  Tape tape;
  Pass evaluation;
  evaluation.training = false;
  tape.begin(evaluation);
  BatchNorm norm("norm1", 2);
  std::vector<StateTensor> running = norm.statistics();
  running[0].values[1] = 20.0F;
  running[1].values[1] = 25.0F;
  const Tensor result = norm(tape.constant({4, 2}, kBatch));
  EXPECT_THAT(result.values(),
              Pointwise(FloatNear(1e-4F), {1.0F, -2.0F, 3.0F, -2.0F, 5.0F, 4.0F, 7.0F, 4.0F}));
  EXPECT_THAT(norm.statistics()[0].values, ElementsAre(0.0F, 20.0F));
  EXPECT_FALSE(result.needs_gradient());
}

TEST(BatchNorm, ABatchWithoutSamplesLeavesTheStatistics) {
  Tape tape;
  tape.begin();
  BatchNorm norm("norm1", 2);
  static_cast<void>(norm(tape.constant({0, 2}, {})));
  EXPECT_THAT(norm.statistics()[0].values, ElementsAre(0.0F, 0.0F));
  EXPECT_THAT(norm.statistics()[1].values, ElementsAre(1.0F, 1.0F));
}

TEST(BatchNorm, ABatchWhoseStatisticsAreNotFiniteLeavesTheRunningOnes) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30F}) {
    Tape tape;
    tape.begin();
    BatchNorm norm("norm1", 2);
    std::array batch = kBatch;
    batch[3] = bad;
    static_cast<void>(norm(tape.constant({4, 2}, batch)));
    EXPECT_THAT(norm.statistics()[0].values, ElementsAre(0.0F, 0.0F)) << bad;
    EXPECT_THAT(norm.statistics()[1].values, ElementsAre(1.0F, 1.0F)) << bad;
  }
}

TEST(BatchNorm, AnotherRanksSamplesCount) {
  Tape tape;
  tape.begin();
  // The other rank has the same samples, so that the sums are twice this rank's.
  int calls = 0;
  BatchNorm norm("norm1", 2, [&calls](std::span<double> values) {
    ++calls;
    for (double& value : values) value *= 2.0F;
  });
  const Tensor images = tape.variable({4, 2}, kBatch);
  tape.backward(sum(norm(images) * images));
  EXPECT_EQ(calls, 3);
  EXPECT_THAT(norm.statistics()[0].values, Pointwise(FloatNear(1e-5F), {0.4F, 2.5F}));
  // Corrected by 8 / 7: eight samples were counted.
  EXPECT_THAT(norm.statistics()[1].values,
              Pointwise(FloatNear(1e-4F), {0.9F + 4.0F / 7.0F, 0.9F + 180.0F / 7.0F}));
}

}  // namespace
}  // namespace ronde::trainer
