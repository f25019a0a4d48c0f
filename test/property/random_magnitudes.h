// SPDX-License-Identifier: Apache-2.0
// Numbers whose sum has different bits in every order of summation.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>

#include "test/unit/collectives/rule_oracle.h"

namespace ronde::collectives::oracle {

// Returns numbers of a wide range of magnitudes, so that every other order of summation gives other
// bits; some are so small that their sums are subnormal.
inline Bytes random_magnitudes(DType dtype, std::int64_t elements, std::mt19937_64& random) {
  const int smallest = dtype == DType::kF64 ? -1060 : dtype == DType::kF16 ? -22 : -140;
  std::uniform_real_distribution<double> mantissa(-2.0, 2.0);
  std::uniform_int_distribution<int> ordinary(-8, 8);
  Bytes memory(static_cast<std::size_t>(elements * base::size_of(dtype)));
  for (std::int64_t i = 0; i < elements; ++i) {
    const int exponent = random() % 8 == 0 ? smallest + ordinary(random) / 4 : ordinary(random);
    const double value = std::ldexp(mantissa(random), exponent);
    store(dtype, memory.data(), i, encode(dtype, value));
  }
  return memory;
}

}  // namespace ronde::collectives::oracle
