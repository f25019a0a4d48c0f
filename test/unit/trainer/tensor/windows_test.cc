// SPDX-License-Identifier: Apache-2.0
// Operations that move a window over images: what is not a number, batches without samples, and
// what is refused. Results and gradients are compared with PyTorch's (test/python/core).
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "test/unit/trainer/tensor/layouts.h"

namespace ronde::trainer {
namespace {

TEST(Windows, PoolsPassNanOnAndMeansCountWhatIsPadded) {
  Tape tape;
  tape.begin();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto pooled = [&](std::array<float, 4> values) {
    return max_pool(tape.constant({1, 1, 2, 2}, values), {{2, 2}, {2, 2}, {0, 0}}).item();
  };
  EXPECT_TRUE(std::isnan(pooled({kNan, 1, 2, 3})));
  EXPECT_TRUE(std::isnan(pooled({3, 2, 1, kNan})));
  EXPECT_TRUE(std::isnan(pooled({kNan, kNan, kNan, kNan})));
  EXPECT_EQ(pooled({-1, -2, -3, -4}), -1);
  const Tensor one = tape.variable({1, 1, 1, 1}, std::array{8.F});
  const Tensor mean = average_pool(one, {{2, 2}, {1, 1}, {1, 1}});
  EXPECT_EQ(std::vector<float>(mean.values().begin(), mean.values().end()),
            std::vector<float>(4, 2.0F));
  tape.backward(sum(mean));
  EXPECT_EQ(tape.gradient(one), std::vector<float>(1, 1.0F));
}

TEST(Windows, ABatchWithoutSamplesGivesGradientsOfZero) {
  Tape tape;
  tape.begin();
  const Tensor weights = tape.variable({kPadded, 2, 3, 3}, numbers({kPadded, 18}, 1));
  const Tensor bias = tape.variable({kPadded}, numbers({kPadded}, 2));
  const Tensor images = tape.variable({0, 2, 6, 6}, {});
  const Window pool{{2, 2}, {2, 2}, {0, 0}};
  const Tensor deep = relu(convolution(images, weights, bias, {{3, 3}, {1, 1}, {0, 0}}));
  const Tensor result = average_pool(max_pool(deep, pool), pool);
  EXPECT_EQ(result.shape(), (Shape{0, kPadded, 1, 1}));
  tape.backward(sum(result));
  EXPECT_EQ(tape.gradient(weights), std::vector<float>(kPadded * 18, 0.0F));
  EXPECT_EQ(tape.gradient(bias), std::vector<float>(kPadded, 0.0F));
}

TEST(Windows, ShapesThatDoNotFitAreNamedBoth) {
  Tape tape;
  tape.begin();
  Parameter weights("conv1/weight", {8, 3, 3, 3});
  Parameter bias("conv1/bias", {8});
  const Window window{{3, 3}, {1, 1}, {0, 0}};
  const auto convolved = [&](const Shape& shape, const Window& by) {
    const Tensor images = tape.constant(shape, std::vector<float>(elements_of(shape)));
    return refusal(
        [&] { static_cast<void>(convolution(images, tape.use(weights), tape.use(bias), by)); });
  };
  EXPECT_NE(convolved({2, 1, 6, 6}, window)
                .find("convolution: 2 x 1 x 6 x 6 does not fit conv1/weight (8 x 3 x 3 x 3)"),
            std::string::npos);
  EXPECT_NE(convolved({2, 3, 6, 6}, {{2, 2}, {1, 1}, {0, 0}}).find("window of 2 x 2"),
            std::string::npos);
  EXPECT_NE(convolved({2, 3, 2, 6}, window).find("does not fit into a tensor of 2 x 3 x 2 x 6"),
            std::string::npos);
  EXPECT_NE(convolved({2, 3, 6, 6}, {{3, 3}, {0, 1}, {0, 0}}).find("strides are at least 1"),
            std::string::npos);
  EXPECT_NE(convolved({6, 6}, window).find("2 sides, expected 4"), std::string::npos);
  const Tensor images = tape.constant({1, 1, 4, 4}, std::vector<float>(16));
  EXPECT_NE(refusal([&] {
              static_cast<void>(max_pool(images, {{2, 2}, {2, 2}, {2, 2}}));
            }).find("may lie outside the image"),
            std::string::npos);
}

}  // namespace
}  // namespace ronde::trainer
