// SPDX-License-Identifier: Apache-2.0
// What random schedules are drawn with.
#pragma once

#include <cstdint>
#include <random>

namespace ronde::runtime {

inline std::int64_t draw(std::mt19937_64& random, std::int64_t from, std::int64_t to) {
  return std::uniform_int_distribution<std::int64_t>(from, to)(random);
}

inline bool chance(std::mt19937_64& random, double probability) {
  return std::bernoulli_distribution(probability)(random);
}

}  // namespace ronde::runtime
