// SPDX-License-Identifier: Apache-2.0
// The conversions of float16.h for one number at a time: the kernels convert vectors.
#pragma once

#include <cstdint>

#include "collectives/kernels/float16.h"

namespace ronde::collectives {

inline float to_f32(BFloat16 value) {
  return __builtin_bit_cast(float, bits_of_bf16_widened<std::uint32_t>(value.bits));
}

inline float to_f32(Float16 value) {
  return __builtin_bit_cast(float,
                            bits_of_f16_widened<std::int32_t, float, std::uint32_t>(value.bits));
}

inline BFloat16 to_bf16(float value) {
  return {static_cast<std::uint16_t>(bits_of_f32_as_bf16_above<std::uint32_t>(value) >> 16)};
}

inline Float16 to_f16(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  return {static_cast<std::uint16_t>(bits_of_f32_as_f16<std::int32_t, float>(bits))};
}

}  // namespace ronde::collectives
