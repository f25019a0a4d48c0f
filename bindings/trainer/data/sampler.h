// SPDX-License-Identifier: Apache-2.0
// Which rank has which samples. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ronde::trainer {

struct Range {
  std::size_t first = 0;
  std::size_t last = 0;  // one past the end

  [[nodiscard]] std::size_t size() const noexcept { return last - first; }
};

// The contiguous part of `whole` that `rank` has. Sizes differ by at most 1; with more ranks than
// elements some parts are empty.
[[nodiscard]] inline Range part_of(Range whole, std::size_t rank, std::size_t ranks) {
  const std::size_t each = whole.size() / ranks;
  const std::size_t longer = whole.size() % ranks;  // so many ranks, the first ones, have one more
  const std::size_t first = whole.first + rank * each + std::min(rank, longer);
  return {first, first + each + (rank < longer ? 1 : 0)};
}

}  // namespace ronde::trainer
