// SPDX-License-Identifier: Apache-2.0
// In which order samples come, and which rank has which of them. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "bindings/trainer/tensor/random.h"

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

// Puts the items into an order that depends on seed, epoch and their number alone.
template <typename Item>
void shuffle(std::span<Item> items, std::uint64_t seed, std::uint64_t epoch) {
  Generator generator(seed, epoch);
  for (std::size_t left = items.size(); left > 1; --left) {
    std::swap(items[left - 1], items[generator.below(left)]);
  }
}

}  // namespace ronde::trainer
