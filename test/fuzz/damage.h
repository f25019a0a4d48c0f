// SPDX-License-Identifier: Apache-2.0
// How the fuzz tests damage messages, and what they do with every decoder.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "test/unit/runtime/negotiate/sample_messages.h"

namespace ronde::runtime::fuzz {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

inline std::size_t place(Random& random, std::size_t size) {
  return static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(size) - 1));
}

inline std::byte random_byte(Random& random) {
  // Lengths, signs and enumerations break at the ends of their ranges.
  const unsigned ends[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
  if (draw(random, 0, 1) == 0) return static_cast<std::byte>(ends[draw(random, 0, 4)]);
  return static_cast<std::byte>(draw(random, 0, 255));
}

// Damages a message once, in one of several ways; `other` is another message, to splice with.
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

// check(bytes) tells whether a decoder accepts them, and fails the test where it must not do what
// it does. random_message(random) makes a whole message.
template <class RandomMessage, class Check>
void check_damaged(Random random, RandomMessage&& random_message, Check&& check) {
  int accepted = 0;
  constexpr int kTries = 60'000;
  for (int i = 0; i < kTries && !testing::Test::HasFailure(); ++i) {
    Bytes bytes = random_message(random);
    for (std::int64_t times = draw(random, 1, 3); times > 0; --times) {
      damage(random, bytes, random_message(random));
    }
    accepted += check(bytes) ? 1 : 0;
  }
  // Messages must be accepted often and refused often, or the damage is of the wrong kind.
  EXPECT_GT(accepted, kTries / 20);
  EXPECT_LT(accepted, kTries - kTries / 20);
}

// Sets every byte of some messages to every end of its range.
template <class RandomMessage, class Check>
void check_every_byte(Random random, RandomMessage&& random_message, Check&& check) {
  for (int i = 0; i < 40 && !testing::Test::HasFailure(); ++i) {
    const Bytes bytes = random_message(random);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (const unsigned value : {0x00U, 0x01U, 0x7FU, 0x80U, 0xFFU}) {
        Bytes damaged = bytes;
        damaged[at] = static_cast<std::byte>(value);
        (void)check(damaged);
      }
    }
  }
}

}  // namespace ronde::runtime::fuzz
