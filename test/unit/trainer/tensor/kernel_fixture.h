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
#include "test/unit/trainer/tensor/numbers.h"

namespace ronde::trainer {

// Row-major numbers of a shape, in double precision.
struct Doubles {
  explicit Doubles(Shape sides) : shape(std::move(sides)), values(elements_of(shape), 0.0) {}
  explicit Doubles(const Values& from) : Doubles(from.shape) {
    std::ranges::copy(from.plain(), values.begin());
  }

  Shape shape;
  std::vector<double> values;
};

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
