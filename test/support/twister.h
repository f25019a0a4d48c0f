// SPDX-License-Identifier: Apache-2.0
// The numbers of std::mt19937_64 in half of the time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace ronde::testing {

// The Mersenne twister MT19937-64. libstdc++ compiles its own into a branch on a random bit, which
// is mispredicted every other time; here the bit becomes a mask. Thread safety: none; one thread
// uses it.
class Twister {
 public:
  using result_type = std::uint64_t;
  static constexpr std::uint64_t min() { return 0; }
  static constexpr std::uint64_t max() { return std::numeric_limits<std::uint64_t>::max(); }

  explicit Twister(std::uint64_t seed) {
    state_[0] = seed;
    for (std::size_t i = 1; i < kWords; ++i) {
      state_[i] = 6364136223846793005U * (state_[i - 1] ^ (state_[i - 1] >> 62)) + i;
    }
  }

  std::uint64_t operator()() {
    if (next_ == kWords) refill();
    std::uint64_t number = state_[next_++];
    number ^= (number >> 29) & 0x5555555555555555U;
    number ^= (number << 17) & 0x71D67FFFEDA60000U;
    number ^= (number << 37) & 0xFFF7EEE000000000U;
    return number ^ (number >> 43);
  }

 private:
  static constexpr std::size_t kWords = 312;
  static constexpr std::size_t kHalf = kWords / 2;

  static std::uint64_t twisted(std::uint64_t upper, std::uint64_t lower, std::uint64_t far) {
    constexpr std::uint64_t kLower = 0x7FFFFFFF;
    const std::uint64_t both = (upper & ~kLower) | (lower & kLower);
    return far ^ (both >> 1) ^ ((0 - (lower & 1)) & 0xB5026F5AA96619E9U);
  }

  void refill() {
    for (std::size_t i = 0; i < kHalf; ++i) {
      state_[i] = twisted(state_[i], state_[i + 1], state_[i + kHalf]);
    }
    for (std::size_t i = kHalf; i < kWords - 1; ++i) {
      state_[i] = twisted(state_[i], state_[i + 1], state_[i - kHalf]);
    }
    state_[kWords - 1] = twisted(state_[kWords - 1], state_[0], state_[kHalf - 1]);
    next_ = 0;
  }

  std::array<std::uint64_t, kWords> state_;
  std::size_t next_ = kWords;
};

}  // namespace ronde::testing
