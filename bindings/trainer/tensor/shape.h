// SPDX-License-Identifier: Apache-2.0
// The sides of a tensor, and of a window over it.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

// Sides from the slowest to the fastest in memory; none: one element. Images are {samples,
// channels, height, width}.
using Shape = std::vector<std::size_t>;

// How a window moves over an image: sides and steps by {height, width}; padding on each edge.
struct Window {
  std::array<std::size_t, 2> side{1, 1};
  std::array<std::size_t, 2> stride{1, 1};
  std::array<std::size_t, 2> padding{0, 0};
};

// A shape as text: "64 x 784"; "1 element" where there are no sides.
[[nodiscard]] inline std::string text_of(const Shape& shape) {
  std::string text;
  for (const std::size_t side : shape) text += (text.empty() ? "" : " x ") + std::to_string(side);
  return shape.empty() ? "1 element" : text;
}

// How many elements a tensor of this shape has. Throws TrainerError if the count overflows.
[[nodiscard]] inline std::size_t elements_of(const Shape& shape) {
  std::size_t elements = 1;
  for (const std::size_t side : shape) {
    if (!__builtin_mul_overflow(elements, side, &elements)) continue;
    throw TrainerError("a tensor of " + text_of(shape) + " has too many elements: make it smaller");
  }
  return elements;
}

}  // namespace ronde::trainer
