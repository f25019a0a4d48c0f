// SPDX-License-Identifier: Apache-2.0
// The two 16-bit floating-point types as bit patterns, and their conversions to and from f32. They
// round to nearest, ties to even; a NaN stays a NaN.
//
// The conversions of bits are written once for one number and for a vector of numbers: U, I and F
// are uint32_t, int32_t and float, or compiler vectors of those. They are compiled for several
// instruction sets, so nothing here may become a function that a linker shares: all is inlined, and
// nothing of the standard library is called (__builtin_bit_cast instead of std::bit_cast).
#pragma once

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

// Converts bits of bf16, in the lower half of 32, to bits of f32.
template <class U>
[[gnu::always_inline]] inline U bits_of_bf16_widened(U bf16) {
  return bf16 << 16;
}

// Converts f32 to bf16 in the upper half of 32 bits; the caller drops the lower half.
template <class U, class F>
[[gnu::always_inline]] inline U bits_of_f32_as_bf16_above(F value) {
  const U bits = __builtin_bit_cast(U, value);
  const U rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  // NaNs have a case of their own, since rounding could carry one into infinity or beyond.
  const U nan = U{} + 0x7fc00000U;
  return value != value ? nan : rounded;
}

// Converts bits of f16, in the lower half of 32, to bits of f32.
template <class I, class F, class U>
[[gnu::always_inline]] inline U bits_of_f16_widened(U f16) {
  constexpr std::uint32_t kExponent = 0x7c00U << 13U;
  constexpr std::uint32_t kRebias = (127U - 15U) << 23U;
  constexpr std::uint32_t kOne = (127U - 14U) << 23U;  // 2^-14
  const U sign = (f16 & 0x8000U) << 16;
  const U magnitude = (f16 & 0x7fffU) << 13;
  const U exponent = magnitude & kExponent;
  // A normal number needs its exponent moved; infinity and NaN need it moved to the very top.
  const U moved = magnitude + kRebias;
  const U normal = exponent == kExponent ? moved + kRebias : moved;
  // A subnormal is mantissa * 2^-24. The hardware normalises it, exactly: the mantissa is written
  // below a one at 2^-14, and that one is subtracted again.
  const F one = __builtin_bit_cast(F, U{} + kOne);
  const U subnormal = __builtin_bit_cast(U, __builtin_bit_cast(F, magnitude + kOne) - one);
  return (exponent == 0U ? subnormal : normal) | sign;
}

// Converts bits of f32 to bits of f16. Numbers are compared as signed ones, since vector units
// compare those; all are below 2^31.
template <class I, class F, class U>
[[gnu::always_inline]] inline U bits_of_f32_as_f16(U bits) {
  constexpr std::int32_t kInfinity = 255 << 23;
  constexpr std::int32_t kTooLarge = (127 + 16) << 23;        // 65536
  constexpr std::int32_t kSmallestNormal = (127 - 14) << 23;  // 2^-14
  constexpr std::uint32_t kHalf = (127U - 1U) << 23U;         // 0.5
  const U sign = bits & 0x80000000U;
  const U magnitude = bits ^ sign;
  const I size = __builtin_bit_cast(I, magnitude);
  // Below 2^-14 the last place is 2^-24, which is the last place of f32 numbers just above 0.5:
  // adding 0.5 makes the hardware round there, with ties to even, subnormals and zero included.
  const F half = __builtin_bit_cast(F, U{} + kHalf);
  const U subnormal = __builtin_bit_cast(U, __builtin_bit_cast(F, magnitude) + half) - kHalf;
  // This rounds away 13 bits; a carry runs into the exponent and, at the top, into infinity.
  const U odd = (magnitude >> 13) & 1U;
  const U normal = (magnitude - ((127U - 15U) << 23U) + 0xfffU + odd) >> 13;
  const U infinity = U{} + 0x7c00U;
  const U special = size > kInfinity ? infinity | 0x0200U : infinity;
  const U rounded = size < kSmallestNormal ? subnormal : normal;
  return (size < kTooLarge ? rounded : special) | (sign >> 16);
}

}  // namespace ronde::collectives
