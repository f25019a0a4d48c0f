// SPDX-License-Identifier: Apache-2.0
// Division of many integers by one number, which averages need and vector units lack. This is part
// of kernels/reduce_impl.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ronde::collectives {
namespace {

template <class T>
[[gnu::always_inline]] inline T load_one(const std::byte* from, std::int64_t index) {
  T value;
  __builtin_memcpy(&value, from + index * std::int64_t{sizeof(T)}, sizeof(T));
  return value;
}
template <class T>
[[gnu::always_inline]] inline void store_one(std::byte* to, std::int64_t index, T value) {
  __builtin_memcpy(to + index * std::int64_t{sizeof(T)}, &value, sizeof(T));
}

template <class T>
inline constexpr bool kIsSigned = T(-1) < T(0);

// 32 bits: (|x| + 1/2) / d lies at least 1/(2d) away from a whole number on either side, so a
// product with the rounded reciprocal truncates to the same as long as its error, |x| / d * 2^-52
// in f64, is smaller: for |x| up to 2^32. The compiler makes vectors of it.
template <class T>
void divide_by_reciprocal(std::byte* values, std::int64_t elements, std::int64_t divisor) {
  const double reciprocal = 1.0 / static_cast<double>(divisor);
  for (std::int64_t i = 0; i < elements; ++i) {
    const T value = load_one<T>(values, i);
    double wide;
    if constexpr (!kIsSigned<T>) {
      // Vector units convert signed numbers only.
      wide = static_cast<double>(static_cast<std::int32_t>(value ^ 0x80000000U)) + 2147483648.0;
    } else {
      wide = static_cast<double>(value);
    }
    const double half = kIsSigned<T> && value < T{0} ? -0.5 : 0.5;
    const auto quotient = static_cast<std::int32_t>((wide + half) * reciprocal);
    store_one<T>(values, i, static_cast<T>(quotient));
  }
}

__extension__ using Wide = unsigned __int128;

// 64 bits: this is the multiplication of Granlund and Montgomery ("Division by Invariant Integers
// using Multiplication", 1994, figure 4.1), exact for every number and divisor.
// Thread safety: immutable.
class Divider {
 public:
  explicit Divider(std::uint64_t divisor) {
    const int bits = divisor == 1 ? 0 : 64 - __builtin_clzll(divisor - 1);  // of the ceiling
    const Wide excess = (Wide{1} << bits) - divisor;
    multiplier_ = static_cast<std::uint64_t>((excess << 64) / divisor) + 1;
    first_shift_ = bits < 1 ? bits : 1;
    second_shift_ = bits < 1 ? 0 : bits - 1;
  }
  [[gnu::always_inline]] std::uint64_t operator()(std::uint64_t value) const {
    const auto high = static_cast<std::uint64_t>(Wide{multiplier_} * value >> 64);
    return (high + ((value - high) >> first_shift_)) >> second_shift_;
  }

 private:
  std::uint64_t multiplier_;
  int first_shift_;
  int second_shift_;
};

template <class T>
void divide_wide(std::byte* values, std::int64_t elements, std::int64_t divisor) {
  const Divider divide(static_cast<std::uint64_t>(divisor));
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto value = load_one<std::uint64_t>(values, i);
    // All ones for a negative number, whose size is divided.
    const std::uint64_t sign = kIsSigned<T> ? 0 - (value >> 63) : 0;
    store_one(values, i, (divide((value ^ sign) - sign) ^ sign) - sign);
  }
}

// Divides and truncates towards zero; the divisor is at least 2.
template <class T>
void divide(std::byte* values, std::int64_t elements, std::int64_t divisor) {
  if constexpr (sizeof(T) == 8) {
    divide_wide<T>(values, elements, divisor);
  } else {
    static_assert(sizeof(T) == 4);
    divide_by_reciprocal<T>(values, elements, divisor);
  }
}

}  // namespace
}  // namespace ronde::collectives
