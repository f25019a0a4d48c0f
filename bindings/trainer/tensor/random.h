// SPDX-License-Identifier: Apache-2.0
// A portable random generator. The distributions of the standard library differ between
// implementations; with this one a seed means the same weights and batches everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace ronde::trainer {

// SplitMix64 (Steele, Lea, Flood 2014). A seed has many independent streams: one per use.
//
// Thread safety: a Generator belongs to one thread at a time.
class Generator {
 public:
  explicit Generator(std::uint64_t seed, std::uint64_t stream = 0)
      : state_(mix(seed + kStep) ^ mix(mix(stream + 2 * kStep))) {}

  std::uint64_t next() {
    state_ += kStep;
    return mix(state_);
  }

  // Uniform in 0 .. bound - 1; `bound` is at least 1.
  std::uint64_t below(std::uint64_t bound) {
    // The values above the largest multiple of `bound` would favour small results.
    const std::uint64_t excess = (UINT64_MAX % bound + 1) % bound;
    std::uint64_t value = next();
    while (value > UINT64_MAX - excess) value = next();
    return value % bound;
  }

  // Uniform in [low, high); only exact operations before the last one.
  float uniform(float low, float high) {
    const float fraction = static_cast<float>(next() >> 40) * 0x1p-24F;
    return low + (high - low) * fraction;
  }

 private:
  static constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15U;

  static constexpr std::uint64_t mix(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
    return value ^ (value >> 31);
  }

  std::uint64_t state_;
};

// Puts the items into an order that depends on seed, epoch and their number alone.
template <typename Item>
void shuffle(std::span<Item> items, std::uint64_t seed, std::uint64_t epoch) {
  Generator generator(seed, epoch);
  for (std::size_t left = items.size(); left > 1; --left) {
    std::swap(items[left - 1], items[generator.below(left)]);
  }
}

}  // namespace ronde::trainer
