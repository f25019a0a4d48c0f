// SPDX-License-Identifier: Apache-2.0
// What oneDNN's computations are compared with: plain loops in double precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/kernels.h"
#include "test/unit/trainer/tensor/gradients.h"

namespace ronde::trainer {

// Row-major numbers of a shape, in double precision.
struct Doubles {
  explicit Doubles(Shape sides) : shape(std::move(sides)), values(elements_of(shape), 0.0) {}
  explicit Doubles(const Values& from) : Doubles(from.shape) {
    std::ranges::copy(from.plain(), values.begin());
  }
  double& at(std::size_t a, std::size_t b, std::size_t c, std::size_t d) {
    return values.at(((a * shape[1] + b) * shape[2] + c) * shape[3] + d);
  }

  Shape shape;
  std::vector<double> values;
};

// Calls visit(n, output channel, channel, y, x, window row, window column, image row, image column)
// for all that a convolution multiplies.
template <typename Visit>
void each_product(const Shape& input, const Shape& weights, const Shape& output,
                  const Window& window, const Visit& visit) {
  for (std::size_t n = 0; n < input[0]; ++n)
    for (std::size_t o = 0; o < weights[0]; ++o)
      for (std::size_t c = 0; c < weights[1]; ++c)
        for (std::size_t y = 0; y < output[2]; ++y)
          for (std::size_t x = 0; x < output[3]; ++x)
            for (std::size_t r = 0; r < weights[2]; ++r)
              for (std::size_t s = 0; s < weights[3]; ++s) {
                const std::size_t row = y * window.stride[0] + r - window.padding[0];
                const std::size_t column = x * window.stride[1] + s - window.padding[1];
                // Unsigned: what lies before the image is far behind it.
                if (row < input[2] && column < input[3]) visit(n, o, c, y, x, r, s, row, column);
              }
}

class Kernel : public ::testing::Test {
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

}  // namespace ronde::trainer
