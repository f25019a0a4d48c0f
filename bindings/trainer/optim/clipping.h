// SPDX-License-Identifier: Apache-2.0
// How gradients are clipped to a norm.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace ronde::trainer {

// Eight sums side by side, which a compiler keeps in vectors; always in the same order. The squares
// of finite f32 never overflow in double precision.
[[nodiscard]] inline double sum_of_squares(std::span<const float> values) {
  std::array<double, 8> sums{};
  const std::size_t whole = values.size() / sums.size() * sums.size();
  for (std::size_t i = 0; i < whole; i += sums.size()) {
    for (std::size_t j = 0; j < sums.size(); ++j) {
      const double value = values[i + j];
      sums[j] += value * value;
    }
  }
  double total = 0.0;
  for (const double sum : sums) total += sum;
  for (const float value : values.subspan(whole)) total += static_cast<double>(value) * value;
  return total;
}

// What gradients of a norm above `most` are multiplied by.
[[nodiscard]] inline float clipping_factor(double most, double norm) {
  return static_cast<float>(most / (norm + 1e-6));
}

}  // namespace ronde::trainer
