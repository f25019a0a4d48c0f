// SPDX-License-Identifier: Apache-2.0
// A 64-bit hash of bytes (FNV-1a), to compare the parameters of ranks and of runs. Not for secrets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ronde::trainer {

// Thread safety: a Hash belongs to one thread at a time.
class Hash {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      value_ = (value_ ^ static_cast<std::uint64_t>(byte)) * kPrime;
    }
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  static constexpr std::uint64_t kPrime = 0x100000001B3U;

  std::uint64_t value_ = 0xCBF29CE484222325U;
};

}  // namespace ronde::trainer
