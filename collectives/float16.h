// SPDX-License-Identifier: Apache-2.0
// The two 16-bit floating-point types as bit patterns, and their conversions to and from f32. Round
// to nearest, ties to even; a NaN stays a NaN. Without branches and inlined, so that loops
// vectorise.
#pragma once

#include <bit>
#include <cstdint>

namespace ronde::collectives {

// IEEE 754 binary16: sign, 5 bits of exponent, 10 of mantissa.
struct Float16 {
  std::uint16_t bits;
};

// The upper half of an f32: sign, 8 bits of exponent, 7 of mantissa.
struct BFloat16 {
  std::uint16_t bits;
};

[[gnu::always_inline]] inline float to_f32(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

// All ones or all zeros. Compilers may turn a choice between two numbers into a branch, and then
// cannot vectorise when floating-point arithmetic is behind it; masks keep the arithmetic
// unconditional.
inline std::uint32_t mask_if(bool condition) { return 0U - static_cast<std::uint32_t>(condition); }
inline std::uint32_t choose(std::uint32_t mask, std::uint32_t then, std::uint32_t otherwise) {
  return (then & mask) | (otherwise & ~mask);
}
// a < b for numbers below 2^31: comparing as signed is what vector units can do.
inline bool below(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b);
}

[[gnu::always_inline]] inline float to_f32(Float16 value) {
  constexpr std::uint32_t kExponent = 0x7c00U << 13U;
  constexpr std::uint32_t kRebias = (127U - 15U) << 23U;
  constexpr std::uint32_t kOne = (127U - 14U) << 23U;  // 2^-14
  const std::uint32_t wide = value.bits;
  const std::uint32_t sign = (wide & 0x8000U) << 16U;
  const std::uint32_t magnitude = (wide & 0x7fffU) << 13U;
  const std::uint32_t exponent = magnitude & kExponent;
  // A normal number needs its exponent moved; infinity and NaN need it moved to the very top.
  const std::uint32_t normal = magnitude + kRebias + (kRebias & mask_if(exponent == kExponent));
  // A subnormal is mantissa * 2^-24: let the hardware normalise, by writing the mantissa below a
  // one at 2^-14 and taking that one away again. Exact.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(
      std::bit_cast<float>(magnitude + kOne) - std::bit_cast<float>(kOne));
  return std::bit_cast<float>(choose(mask_if(exponent == 0), subnormal, normal) | sign);
}

[[gnu::always_inline]] inline BFloat16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
  // Rounding could carry a NaN into infinity or beyond; the quiet bit keeps it one.
  const std::uint32_t nan = (bits >> 16U) | 0x0040U;
  const std::uint32_t is_nan = mask_if(below(0x7f800000U, bits & 0x7fffffffU));
  return {static_cast<std::uint16_t>(choose(is_nan, nan, rounded))};
}

[[gnu::always_inline]] inline Float16 to_f16(float value) {
  constexpr std::uint32_t kInfinity = 255U << 23U;
  constexpr std::uint32_t kTooLarge = (127U + 16U) << 23U;        // 65536
  constexpr std::uint32_t kSmallestNormal = (127U - 14U) << 23U;  // 2^-14
  constexpr std::uint32_t kHalf = (127U - 1U) << 23U;             // 0.5
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits & 0x80000000U;
  const std::uint32_t magnitude = bits ^ sign;
  // Below 2^-14 the last place is 2^-24, which is the last place of f32 numbers just above 0.5:
  // adding 0.5 makes the hardware round there, with ties to even, subnormals and zero included.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kHalf)) -
      kHalf;
  // Rounds the 13 bits that go; a carry runs into the exponent and, at the top, into infinity.
  const std::uint32_t odd = (magnitude >> 13U) & 1U;
  const std::uint32_t normal = (magnitude - ((127U - 15U) << 23U) + 0xfffU + odd) >> 13U;
  const std::uint32_t special = 0x7c00U | (0x0200U & mask_if(below(kInfinity, magnitude)));
  const std::uint32_t rounded =
      choose(mask_if(below(magnitude, kSmallestNormal)), subnormal, normal);
  const std::uint32_t result = choose(mask_if(below(magnitude, kTooLarge)), rounded, special);
  return {static_cast<std::uint16_t>(result | (sign >> 16U))};
}

}  // namespace ronde::collectives
