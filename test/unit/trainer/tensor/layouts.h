// SPDX-License-Identifier: Apache-2.0
// Tensors in the layouts that convolutions leave, and numbers for functions with kinks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/random.h"
#include "bindings/trainer/tensor/tape.h"
#include "test/unit/trainer/tensor/gradients.h"

namespace ronde::trainer {

// Channels that fill no block of a layout, so that it pads.
inline constexpr std::size_t kPadded = 17;

inline Given random_input(const Shape& shape, std::uint64_t seed) {
  return {shape, numbers(shape, seed)};
}

// Numbers that lie at least 0.04 from each other and 0.02 from zero, in a random order: a small
// step changes no order and no sign.
inline Given distinct_input(const Shape& shape, std::uint64_t seed) {
  std::vector<float> distinct(elements_of(shape));
  for (std::size_t i = 0; i < distinct.size(); ++i) {
    distinct[i] = (static_cast<float>(i) - static_cast<float>(distinct.size() / 2) + 0.5F) * 0.04F;
  }
  Generator generator(seed);
  for (std::size_t i = distinct.size(); i > 1; --i) {
    std::swap(distinct[i - 1], distinct[generator.below(i)]);
  }
  return {shape, std::move(distinct)};
}

// The same images as the result of a convolution, in the layout that it chooses.
inline Tensor in_own_layout(const Tensor& images) {
  const std::size_t channels = images.side(1);
  std::vector<float> same(channels * channels, 0.0F);
  for (std::size_t i = 0; i < channels; ++i) same[i * channels + i] = 1.0F;
  Tape& tape = images.tape();
  return convolution(images, tape.constant({channels, channels, 1, 1}, same),
                     tape.constant({channels}, std::vector<float>(channels, 0.0F)), Window{});
}

// expect_gradients() with less room for error, for functions that one more step finds straight.
inline void expect_close_gradients(const std::vector<Given>& inputs, const Function& function) {
  expect_gradients(inputs, function, {}, 1e-2F, 5e-3);
}

}  // namespace ronde::trainer
