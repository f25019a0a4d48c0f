// SPDX-License-Identifier: Apache-2.0
// The sides of a tensor.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ronde::trainer {

// Sides from the slowest to the fastest in memory; none: one element. Images are {samples,
// channels, height, width}.
using Shape = std::vector<std::size_t>;

// How many elements a tensor of this shape has. Throws TrainerError if the count overflows.
[[nodiscard]] std::size_t elements_of(const Shape& shape);

// A shape as text: "64 x 784"; "1 element" where there are no sides.
[[nodiscard]] std::string text_of(const Shape& shape);

}  // namespace ronde::trainer
