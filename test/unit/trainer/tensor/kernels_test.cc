// SPDX-License-Identifier: Apache-2.0
// What oneDNN's computations are asked for, kept and let go; their results are compared with
// PyTorch's (test/python/core), but for products too large for that.
#include "bindings/trainer/tensor/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/tensor/numbers.h"
#include "test/unit/trainer/tensor/own_layouts.h"

namespace ronde::trainer {
namespace {

using testing::Each;

// Row-major numbers of a shape, in double precision.
struct Doubles {
  explicit Doubles(Shape sides) : shape(std::move(sides)), values(elements_of(shape), 0.0) {}
  explicit Doubles(const Values& from) : Doubles(from.shape) {
    std::ranges::copy(from.plain(), values.begin());
  }

  Shape shape;
  std::vector<double> values;
};

class Kernel : public testing::Test {
 protected:
  Values random(const Shape& shape, std::uint64_t seed) {
    Values values = Values::make(pool_, shape);
    std::ranges::copy(numbers(shape, seed), values.data());
    return values;
  }
  // Memory that is filled with what must not be read.
  Values garbage(const Shape& shape) {
    Values values = Values::make(pool_, shape);
    std::ranges::fill(values.plain(), std::numeric_limits<float>::quiet_NaN());
    return values;
  }
  void expect_near(const Values& got, const Doubles& expected, double tolerance = 1e-4) {
    ASSERT_EQ(got.shape, expected.shape);
    const Values plain = kernels_.plain(got);
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
      ASSERT_NEAR(plain.plain()[i], expected.values[i], tolerance)
          << "element " << i << " of " << text_of(got.shape);
    }
  }

  MemoryPool pool_;
  Kernels kernels_{pool_, 1};
};

TEST_F(Kernel, PrimitivesOfWindowsThatDifferInOneNumberAreTwo) {
  // All of them leave 2 x 2.
  const std::vector<Window> windows{{{2, 2}, {4, 4}, {0, 0}}, {{2, 2}, {4, 4}, {1, 1}},
                                    {{2, 2}, {3, 3}, {0, 0}}, {{2, 2}, {4, 4}, {0, 1}},
                                    {{1, 2}, {4, 4}, {0, 0}}, {{2, 2}, {3, 4}, {0, 0}}};
  const Values input = random({1, 1, 6, 6}, 1);
  const Values slope = random({1, 1, 2, 2}, 2);
  for (int round = 0; round < 2; ++round) {
    for (const Window& window : windows) {
      ASSERT_EQ(windowed(input.shape, window, 1), slope.shape);
      Kernels fresh(pool_, 1);
      for (const Pooling pooling : {Pooling::kLargest, Pooling::kMean}) {
        const Pooled pooled = kernels_.pool(input, window, pooling, true);
        const Pooled expected = fresh.pool(input, window, pooling, true);
        expect_near(pooled.output, Doubles(expected.output), 0.0);
        expect_near(fresh.pool(input, window, pooling, false).output, Doubles(expected.output),
                    0.0);
        expect_near(
            kernels_.pool_backward(slope, pooled.places, input.shape, window, pooling),
            Doubles(fresh.pool_backward(slope, expected.places, input.shape, window, pooling)),
            0.0);
      }
    }
  }
}

TEST_F(Kernel, ConvolutionsThatDifferInTheWindowAloneAreTwo) {
  const std::vector<Window> windows{{{2, 2}, {4, 4}, {0, 0}},
                                    {{2, 2}, {4, 4}, {1, 1}},
                                    {{2, 2}, {3, 3}, {0, 0}},
                                    {{2, 2}, {4, 4}, {0, 1}}};
  const Values input = random({1, 2, 6, 6}, 1);
  const Values weights = random({3, 2, 2, 2}, 2);
  const Values bias = random({3}, 3);
  const Values slope = random({1, 3, 2, 2}, 4);
  Values none;
  for (int round = 0; round < 2; ++round) {
    for (const Window& window : windows) {
      Kernels fresh(pool_, 1);
      expect_near(kernels_.convolve(input, weights, bias, window),
                  Doubles(fresh.plain(fresh.convolve(input, weights, bias, window))), 0.0);
      expect_near(
          kernels_.convolve_by_input(slope, weights, input.shape, window),
          Doubles(fresh.plain(fresh.convolve_by_input(slope, weights, input.shape, window))), 0.0);
      Values got = garbage(weights.shape);
      Values expected = garbage(weights.shape);
      kernels_.convolve_by_weights(input, slope, got, none, window);
      fresh.convolve_by_weights(input, slope, expected, none, window);
      expect_near(got, Doubles(expected), 0.0);
    }
  }
}

TEST_F(Kernel, NormalizingWithAnotherEpsilonIsAnotherPrimitive) {
  const Values input = random({2, 3, 4, 4}, 1);
  const Values scale = random({3}, 2);
  const Values shift = random({3}, 3);
  for (const float epsilon : {1e-5F, 0.5F, 1e-5F}) {
    Kernels fresh(pool_, 1);
    const Normalized got = kernels_.normalize(input, scale, shift, epsilon, {}, {});
    const Normalized expected = fresh.normalize(input, scale, shift, epsilon, {}, {});
    expect_near(got.output, Doubles(expected.output), 0.0);
    expect_near(kernels_.normalize(input, scale, shift, epsilon, got.mean, got.variance).output,
                Doubles(got.output), 1e-5);
    Values by_scale = garbage({3});
    Values by_shift = garbage({3});
    const Values by_input =
        fresh.normalize_backward(input, input, expected, scale, epsilon, by_scale, by_shift);
    expect_near(kernels_.normalize_backward(input, input, got, scale, epsilon, by_scale, by_shift),
                Doubles(by_input), 0.0);
  }
}

// Two matrices' product by the definition.
Doubles product(const Doubles& a, bool transpose_a, const Doubles& b, bool transpose_b) {
  const std::size_t rows = a.shape[transpose_a ? 1 : 0];
  const std::size_t terms = a.shape[transpose_a ? 0 : 1];
  const std::size_t columns = b.shape[transpose_b ? 0 : 1];
  Doubles c({rows, columns});
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      for (std::size_t k = 0; k < terms; ++k)
        c.values[i * columns + j] += a.values[transpose_a ? k * rows + i : i * terms + k] *
                                     b.values[transpose_b ? j * terms + k : k * columns + j];
  return c;
}

TEST_F(Kernel, ProductsAreWhatPlainLoopsGiveHoweverTheFactorsLie) {
  // The last is large enough for the other way to multiply by a transposed matrix.
  for (const auto& [rows, terms, columns] :
       {std::array<std::size_t, 3>{1, 7, 5}, {17, 33, 10}, {9, 400, 520}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const Values a = random(ta ? Shape{terms, rows} : Shape{rows, terms}, 1);
        const Values b = random(tb ? Shape{columns, terms} : Shape{terms, columns}, 2);
        Values c = garbage({rows, columns});
        kernels_.multiply(a, ta, b, tb, c);
        Doubles expected = product(Doubles(a), ta, Doubles(b), tb);
        expect_near(c, expected);
        kernels_.multiply(a, ta, b, tb, c, true);
        for (double& value : expected.values) value *= 2.0;
        expect_near(c, expected, 2e-4);
      }
    }
  }
}

TEST_F(Kernel, TensorsStayInTheLayoutOfAConvolutionUntilSomeoneAsksForRows) {
  const Window window{{3, 3}, {1, 1}, {1, 1}};
  const Values input = random({2, 17, 6, 6}, 1);
  const Values deep = kernels_.convolve(input, random({17, 17, 3, 3}, 2), random({17}, 3), window);
  ASSERT_EQ(deep.layout != nullptr, has_own_layouts());
  if (has_own_layouts()) {
    EXPECT_THROW(static_cast<void>(deep.plain()), TrainerError);
  }
  const Values positive = kernels_.relu(deep);
  const Window half{{2, 2}, {2, 2}, {0, 0}};
  EXPECT_EQ(positive.layout, deep.layout);
  EXPECT_EQ(kernels_.pool(positive, half, Pooling::kLargest, true).output.layout != nullptr,
            has_own_layouts());
  EXPECT_EQ(kernels_.normalize(deep, random({17}, 4), random({17}, 5), 1e-5F, {}, {}).output.layout,
            deep.layout);
  const Values rows = kernels_.plain(deep);
  EXPECT_EQ(rows.layout, nullptr);
  // Sums of both kinds, with either first.
  Doubles twice(rows);
  for (double& value : twice.values) value *= 2.0;
  expect_near(kernels_.add(deep, rows), twice, 1e-6);
  expect_near(kernels_.add(rows, deep), twice, 1e-6);
  expect_near(kernels_.add(deep, deep), twice, 1e-6);
}

TEST_F(Kernel, NumbersThatAreNotFiniteStaySo) {
  Values input = random({4, 9}, 1);
  input.plain()[5] = std::numeric_limits<float>::quiet_NaN();
  input.plain()[6] = std::numeric_limits<float>::infinity();
  const Values output = kernels_.relu(input);
  EXPECT_TRUE(std::isnan(output.plain()[5]));
  EXPECT_TRUE(std::isinf(output.plain()[6]));
  // Nor does a gradient end at a NaN.
  const Values slope = kernels_.relu_backward(output, random({4, 9}, 2));
  EXPECT_EQ(slope.plain()[5], random({4, 9}, 2).plain()[5]);
}

TEST_F(Kernel, TheLargestOfAWindowWithANanIsNan) {
  const Window half{{2, 2}, {2, 2}, {0, 0}};
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::size_t channels : {1U, 17U}) {  // row-major, and in a layout that pads
    Values rows = random({1, channels, 4, 4}, 1);
    std::ranges::copy(std::array{kNan, 1.F, kInfinity, -kInfinity}, rows.data());
    std::ranges::copy(std::array{2.F, 3.F, 4.F, 5.F, kNan, kNan, 6.F, 7.F, kNan, kNan},
                      rows.data() + 4);
    const Values as_it_is = kernels_.pool(rows, half, Pooling::kLargest, false).output;
    Values same = Values::make(pool_, {channels, channels, 1, 1});
    for (std::size_t i = 0; i < same.size(); ++i) same.data()[i] = i % (channels + 1) == 0 ? 1 : 0;
    Values finite = random({1, channels, 4, 4}, 1);
    finite.data()[0] = kNan;
    for (const bool training : {false, true}) {
      const Values blocked = kernels_.relu(kernels_.convolve(finite, same, {}, {}));
      const Values pooled =
          kernels_.plain(kernels_.pool(blocked, half, Pooling::kLargest, training).output);
      EXPECT_TRUE(std::isnan(pooled.plain()[0])) << channels;
      // The convolution spreads it over all channels.
      EXPECT_EQ(std::ranges::count_if(pooled.plain(), [](float one) { return std::isnan(one); }),
                channels);
    }
    EXPECT_TRUE(std::isnan(as_it_is.plain()[0]));
    EXPECT_EQ(as_it_is.plain()[1], kInfinity);  // beside a -infinity, of which a mean makes NaN
    EXPECT_TRUE(std::isnan(as_it_is.plain()[2]));
  }
}

TEST_F(Kernel, PrimitivesThatNoPassUsesAnyMoreAreLetGo) {
  const Values weights = random({3, 2, 3, 3}, 2);
  const Values bias = random({3}, 3);
  const Window window{{3, 3}, {1, 1}, {1, 1}};
  const Window half{{2, 2}, {2, 2}, {0, 0}};
  const auto compute = [&](Kernels& kernels, std::size_t samples) {
    kernels.begin_pass();
    const Values deep = kernels.convolve(random({samples, 2, 4, 4}, 1), weights, bias, window);
    const Pooled pooled = kernels.pool(deep, half, Pooling::kLargest, true);
    const Values slope =
        kernels.pool_backward(pooled.output, pooled.places, deep.shape, half, Pooling::kLargest);
    return kernels.plain(kernels.convolve_by_input(slope, weights, {samples, 2, 4, 4}, window));
  };
  for (std::size_t samples = 1; samples <= 200; ++samples) compute(kernels_, samples);
  EXPECT_LT(kernels_.held(), 300U);
  for (const std::size_t samples : {1U, 200U}) {
    Kernels fresh(pool_, 1);
    expect_near(compute(kernels_, samples), Doubles(compute(fresh, samples)), 0.0);
  }
  // As many as passes use stay, however many.
  const std::size_t before = kernels_.held();
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t samples = 1; samples <= 200; ++samples) {
      (void)kernels_.convolve(random({samples, 2, 4, 4}, 1), weights, bias, window);
      (void)kernels_.convolve_by_input(random({samples, 3, 4, 4}, 1), weights, {samples, 2, 4, 4},
                                       window);
    }
    kernels_.begin_pass();
  }
  EXPECT_GE(kernels_.held(), 400U);
  EXPECT_GT(kernels_.held(), before);
}

TEST_F(Kernel, ABatchWithoutSamplesIsComputed) {
  const Window window{{3, 3}, {1, 1}, {1, 1}};
  const Shape none{0, 2, 6, 6};
  const Values input = Values::make(pool_, none);
  const Values weights = random({4, 2, 3, 3}, 1);
  const Values output = kernels_.convolve(input, weights, random({4}, 2), window);
  EXPECT_EQ(output.shape, (Shape{0, 4, 6, 6}));
  Values by_weights = garbage(weights.shape);
  Values by_bias = garbage({4});
  kernels_.convolve_by_weights(input, output, by_weights, by_bias, window);
  EXPECT_THAT(by_weights.plain(), Each(0.0F));
  EXPECT_THAT(by_bias.plain(), Each(0.0F));
  EXPECT_EQ(kernels_.convolve_by_input(output, weights, none, window).shape, none);
  EXPECT_EQ(kernels_.relu_backward(kernels_.relu(output), output).shape, output.shape);
  const Window half{{2, 2}, {2, 2}, {0, 0}};
  const Pooled pooled = kernels_.pool(output, half, Pooling::kLargest, true);
  EXPECT_EQ(pooled.output.shape, (Shape{0, 4, 3, 3}));
  EXPECT_EQ(
      kernels_.pool_backward(pooled.output, pooled.places, output.shape, half, Pooling::kLargest)
          .size(),
      0U);
  Values product = garbage({3, 4});
  kernels_.multiply(Values::make(pool_, {0, 3}), true, Values::make(pool_, {0, 4}), false, product);
  EXPECT_THAT(product.plain(), Each(0.0F));
}

TEST_F(Kernel, WhatCannotBeComputedIsOneLineWithTheShapes) {
  // Weights that do not fit the input: operations check this, the kernels leave it to oneDNN.
  try {
    static_cast<void>(kernels_.convolve(random({2, 3, 6, 6}, 1), random({4, 2, 3, 3}, 2),
                                        random({4}, 3), {{3, 3}, {1, 1}, {0, 0}}));
    FAIL() << "nothing was refused";
  } catch (const TrainerError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("a convolution from 2 x 3 x 6 x 6, 4 x 2 x 3 x 3"));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace ronde::trainer
