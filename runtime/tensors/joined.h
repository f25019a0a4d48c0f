// SPDX-License-Identifier: Apache-2.0
// Which ranks have joined, that is, take part in nothing until all have. Everybody learns it from
// the decisions, at the same place among them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace ronde::runtime {

// Thread safety: a value.
class Joined {
 public:
  [[nodiscard]] bool any() const { return !ranks_.empty(); }
  [[nodiscard]] bool has(std::int32_t rank) const {
    return std::binary_search(ranks_.begin(), ranks_.end(), rank);
  }
  // In their order.
  [[nodiscard]] const std::vector<std::int32_t>& ranks() const { return ranks_; }
  // How many of these take part.
  [[nodiscard]] std::uint32_t present(std::span<const std::int32_t> of) const {
    return static_cast<std::uint32_t>(
        std::count_if(of.begin(), of.end(), [this](std::int32_t rank) { return !has(rank); }));
  }

  void add(std::int32_t rank) {
    if (!has(rank)) ranks_.insert(std::upper_bound(ranks_.begin(), ranks_.end(), rank), rank);
  }
  void clear() { ranks_.clear(); }

 private:
  std::vector<std::int32_t> ranks_;
};

}  // namespace ronde::runtime
