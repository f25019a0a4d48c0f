// SPDX-License-Identifier: Apache-2.0
// Numbers whose sum has different bits in every order of summation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "test/unit/collectives/rule_oracle.h"

namespace ronde::collectives::oracle {

// Returns a number of [-2, 2), the one that libstdc++'s std::uniform_real_distribution makes of a
// random std::uint64_t. The halves are converted one by one, because the conversion of the whole
// has a branch on its highest bit, which is mispredicted every other time.
inline double mantissa_of(std::uint64_t bits) {
  const auto upper = static_cast<double>(static_cast<std::uint32_t>(bits >> 32));
  const auto lower = static_cast<double>(static_cast<std::uint32_t>(bits));
  const double fraction = (upper * 0x1p32 + lower) * 0x1p-64;
  return std::min(fraction, 1 - 0x1p-53) * 4.0 - 2.0;
}

// Returns floating-point numbers of a wide range of magnitudes, so that every other order of
// summation gives other bits; some are so small that their sums are subnormal. For the other types,
// any bytes.
template <class Random>  // 64 random bits a call
Bytes random_elements(DType dtype, std::int64_t elements, Random& random) {
  Bytes memory(static_cast<std::size_t>(elements * base::size_of(dtype)));
  if (!base::is_floating(dtype)) {
    for (std::byte& b : memory) {
      b = static_cast<std::byte>(dtype == DType::kBool ? random() % 3 : random() % 256);
    }
    return memory;
  }
  const int smallest = dtype == DType::kF64 ? -1060 : dtype == DType::kF16 ? -22 : -140;
  std::uniform_int_distribution<int> ordinary(-8, 8);
  for (std::int64_t i = 0; i < elements; ++i) {
    const int exponent = random() % 8 == 0 ? smallest + ordinary(random) / 4 : ordinary(random);
    const double value = mantissa_of(random()) * two_to(exponent);
    store(dtype, memory.data(), i, encode(dtype, value));
  }
  return memory;
}

}  // namespace ronde::collectives::oracle
