// SPDX-License-Identifier: Apache-2.0
// Counting and printing the sides of a tensor.
#include "bindings/trainer/tensor/shape.h"

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

std::size_t elements_of(const Shape& shape) {
  std::size_t elements = 1;
  for (const std::size_t side : shape) {
    if (__builtin_mul_overflow(elements, side, &elements)) {
      throw TrainerError("a tensor of " + text_of(shape) +
                         " has too many elements: make it smaller");
    }
  }
  return elements;
}

std::string text_of(const Shape& shape) {
  if (shape.empty()) return "1 element";
  std::string text;
  for (const std::size_t side : shape) text += (text.empty() ? "" : " x ") + std::to_string(side);
  return text;
}

}  // namespace ronde::trainer
