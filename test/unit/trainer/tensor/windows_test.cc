// SPDX-License-Identifier: Apache-2.0
// Operations that move a window over images, and ReLU: gradients, against differences, in row-major
// order and in the layouts that convolutions leave; and what is refused.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/tensor/layouts.h"

namespace ronde::trainer {
namespace {

struct WindowCase {
  std::size_t samples;
  std::size_t channels;
  std::size_t height;
  std::size_t width;
  Window window;
};

std::ostream& operator<<(std::ostream& out, const WindowCase& one) {
  return out << text_of({one.samples, one.channels, one.height, one.width}) << " window "
             << text_of({one.window.side[0], one.window.side[1]}) << " stride "
             << text_of({one.window.stride[0], one.window.stride[1]}) << " padding "
             << text_of({one.window.padding[0], one.window.padding[1]});
}

class Moved : public testing::TestWithParam<WindowCase> {
 protected:
  [[nodiscard]] static Shape shape() {
    const WindowCase& one = GetParam();
    return {one.samples, one.channels, one.height, one.width};
  }
};

TEST_P(Moved, TheGradientsOfAConvolutionAreItsDifferences) {
  const WindowCase& one = GetParam();
  for (const std::size_t outputs : {std::size_t{4}, kPadded}) {
    const Shape weights{outputs, one.channels, one.window.side[0], one.window.side[1]};
    expect_close_gradients(
        {random_input(shape(), 1), random_input(weights, 2), random_input({outputs}, 3)},
        [&](std::span<const Tensor> in) { return convolution(in[0], in[1], in[2], one.window); });
  }
}

TEST_P(Moved, TheGradientsOfTwoConvolutionsInARowAreTheirDifferences) {
  const WindowCase& one = GetParam();
  const Shape first{kPadded, one.channels, 1, 1};
  const Shape second{3, kPadded, one.window.side[0], one.window.side[1]};
  expect_close_gradients(
      {random_input(shape(), 1), random_input(first, 2), random_input({kPadded}, 3),
       random_input(second, 4), random_input({3}, 5)},
      [&](std::span<const Tensor> in) {
        const Tensor between = convolution(in[0], in[1], in[2], Window{});
        return convolution(between, in[3], in[4], one.window);
      });
}

TEST_P(Moved, TheGradientsOfPoolsAreTheirDifferences) {
  for (const bool own_layout : {false, true}) {
    const auto layout = [&](const Tensor& t) { return own_layout ? in_own_layout(t) : t; };
    expect_close_gradients({distinct_input(shape(), 1)}, [&](std::span<const Tensor> in) {
      return max_pool(layout(in[0]), GetParam().window);
    });
    expect_close_gradients({distinct_input(shape(), 1)}, [&](std::span<const Tensor> in) {
      return average_pool(layout(in[0]), GetParam().window);
    });
    // With a gradient that comes in the pool's own layout.
    expect_close_gradients({distinct_input(shape(), 1)}, [&](std::span<const Tensor> in) {
      return in_own_layout(max_pool(layout(in[0]), GetParam().window));
    });
    expect_close_gradients({distinct_input(shape(), 1)}, [&](std::span<const Tensor> in) {
      return in_own_layout(average_pool(layout(in[0]), GetParam().window));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Moved,
                         testing::Values(WindowCase{1, 1, 6, 6, {{3, 3}, {1, 1}, {1, 1}}},
                                         WindowCase{2, kPadded, 6, 5, {{3, 3}, {1, 1}, {1, 1}}},
                                         WindowCase{17, 3, 7, 7, {{3, 3}, {2, 2}, {1, 1}}},
                                         WindowCase{2, kPadded, 7, 7, {{2, 2}, {2, 2}, {0, 0}}},
                                         WindowCase{1, 32, 6, 6, {{2, 2}, {2, 2}, {0, 0}}},
                                         WindowCase{2, 16, 5, 8, {{3, 2}, {2, 1}, {0, 1}}}));

TEST(Windows, TheGradientOfReluIsItsDifferenceInEveryLayout) {
  for (const std::size_t channels : {std::size_t{3}, std::size_t{16}, kPadded}) {
    const Given images = distinct_input({2, channels, 3, 3}, 1);
    expect_close_gradients({images}, [](std::span<const Tensor> in) { return relu(in[0]); });
    expect_close_gradients({images},
                           [](std::span<const Tensor> in) { return relu(in_own_layout(in[0])); });
    expect_close_gradients({images}, [](std::span<const Tensor> in) {
      return in_own_layout(relu(in_own_layout(in[0])));
    });
    expect_close_gradients({images},
                           [](std::span<const Tensor> in) { return in_own_layout(relu(in[0])); });
  }
  expect_close_gradients({distinct_input({5, 7}, 1)},
                         [](std::span<const Tensor> in) { return relu(in[0]); });
}

TEST(Windows, ASmallNetworkOfBlockedLayersHasTheGradientsOfItsDifferences) {
  const Window window{{3, 3}, {1, 1}, {1, 1}};
  expect_close_gradients({random_input({2, 1, 6, 6}, 1), random_input({kPadded, 1, 3, 3}, 2),
                          random_input({kPadded}, 3), random_input({20, kPadded, 3, 3}, 4),
                          random_input({20}, 5), random_input({180, 4}, 6), random_input({4}, 7)},
                         [&](std::span<const Tensor> in) {
                           const Tensor one = sigmoid(convolution(in[0], in[1], in[2], window));
                           const Tensor pooled = average_pool(one, {{2, 2}, {2, 2}, {0, 0}});
                           const Tensor two = convolution(pooled, in[3], in[4], window);
                           return linear(flatten(two), in[5], in[6]);
                         });
}

TEST(Windows, TwoUsesOfABlockedTensorAddTheirGradients) {
  expect_close_gradients({random_input({2, kPadded, 4, 4}, 1),
                          random_input({kPadded, kPadded, 3, 3}, 2), random_input({kPadded}, 3)},
                         [](std::span<const Tensor> in) {
                           const Window window{{3, 3}, {1, 1}, {1, 1}};
                           const Tensor blocked = in_own_layout(in[0]);
                           const Tensor deep = convolution(blocked, in[1], in[2], window);
                           return deep + blocked;
                         });
}

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
