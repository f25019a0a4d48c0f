// SPDX-License-Identifier: Apache-2.0
// How the fuzz tests damage messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include "test/unit/runtime/sample_messages.h"

namespace ronde::runtime::fuzz {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

inline std::size_t place(Random& random, std::size_t size) {
  return static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(size) - 1));
}

inline std::byte random_byte(Random& random) {
  // Lengths, signs and enumerations break at the ends.
  const unsigned ends[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
  if (draw(random, 0, 1) == 0) return static_cast<std::byte>(ends[draw(random, 0, 4)]);
  return static_cast<std::byte>(draw(random, 0, 255));
}

// Once, in one of several ways; `other` is another message, to splice with.
inline void damage(Random& random, Bytes& bytes, const Bytes& other) {
  if (bytes.empty()) return;
  switch (draw(random, 0, 5)) {
    case 0:
      bytes[place(random, bytes.size())] = random_byte(random);
      break;
    case 1:
      bytes[place(random, bytes.size())] ^= static_cast<std::byte>(1U << draw(random, 0, 7));
      break;
    case 2:
      bytes.resize(place(random, bytes.size()));
      break;
    case 3:
      bytes.insert(bytes.begin() + draw(random, 0, std::ssize(bytes)), random_byte(random));
      break;
    case 4: {  // a whole field
      const std::size_t at = place(random, bytes.size());
      const std::size_t end = std::min(at + 4, bytes.size());
      std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                bytes.begin() + static_cast<std::ptrdiff_t>(end), random_byte(random));
      break;
    }
    default: {  // the head of one message and the tail of another
      const std::size_t at = place(random, bytes.size());
      bytes.resize(at);
      if (at < other.size()) {
        bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(at), other.end());
      }
    }
  }
}

}  // namespace ronde::runtime::fuzz
