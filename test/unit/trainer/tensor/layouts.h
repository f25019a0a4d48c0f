// SPDX-License-Identifier: Apache-2.0
// Tensors in the layouts that convolutions leave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/tape.h"
#include "test/unit/trainer/tensor/numbers.h"

namespace ronde::trainer {

// Channels that fill no block of a layout, so that it pads.
inline constexpr std::size_t kPadded = 17;

inline Given random_input(const Shape& shape, std::uint64_t seed) {
  return {shape, numbers(shape, seed)};
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

}  // namespace ronde::trainer
