// SPDX-License-Identifier: Apache-2.0
// Random bytes of the kernel, for secrets and for names that nobody can guess.
#pragma once

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "base/status.h"

namespace ronde::base {

template <std::size_t kSize>
[[nodiscard]] Result<std::array<std::byte, kSize>> random_bytes() {
  std::array<std::byte, kSize> bytes{};
  static_assert(kSize <= 256, "the kernel returns so few bytes whole or not at all");
  if (::getrandom(bytes.data(), kSize, 0) == static_cast<ssize_t>(kSize)) return bytes;
  return Status::system("could not get random bytes", errno);
}

}  // namespace ronde::base
