// SPDX-License-Identifier: Apache-2.0
// Secrets: random bytes of the kernel, also for names that nobody can guess, and their comparison.
#pragma once

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <span>

#include "base/status.h"

namespace ronde::base {

template <std::size_t kSize>
[[nodiscard]] Result<std::array<std::byte, kSize>> random_bytes() {
  std::array<std::byte, kSize> bytes{};
  static_assert(kSize <= 256, "the kernel returns so few bytes whole or not at all");
  if (::getrandom(bytes.data(), kSize, 0) == static_cast<ssize_t>(kSize)) return bytes;
  return Status::system("could not get random bytes", errno);
}

// Compares in constant time, so that the time does not reveal how much of a guess is right.
[[nodiscard]] inline bool same_secret(std::span<const std::byte> left,
                                      std::span<const std::byte> right) {
  unsigned differences = left.size() == right.size() ? 0 : 1;
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
    differences |= std::to_integer<unsigned>(left[i] ^ right[i]);
  }
  return differences == 0;
}

}  // namespace ronde::base
