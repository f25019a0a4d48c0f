// SPDX-License-Identifier: Apache-2.0
// What random schedules are drawn with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>

#include "base/text.h"

namespace ronde::runtime {

inline std::int64_t draw(std::mt19937_64& random, std::int64_t from, std::int64_t to) {
  return std::uniform_int_distribution<std::int64_t>(from, to)(random);
}

inline bool chance(std::mt19937_64& random, double probability) {
  return std::bernoulli_distribution(probability)(random);
}

// How many seeds of a search are run: all, or one in RONDE_TEST_ONE_IN, where each takes ten times
// as long and runs the same lines (test/CMakeLists.txt).
inline std::uint64_t seeds_of(std::uint64_t all) {
  const char* const wanted = std::getenv("RONDE_TEST_ONE_IN");
  const auto one_in = base::parse_number<std::uint64_t>(wanted == nullptr ? "" : wanted);
  return std::max<std::uint64_t>(all / std::max<std::uint64_t>(one_in.value_or(1), 1), 1);
}

}  // namespace ronde::runtime
