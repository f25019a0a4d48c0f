// SPDX-License-Identifier: Apache-2.0
// The order rule written a second time, serially and as plainly as possible, without code of what
// it checks: elements are bit patterns, f32 arithmetic is done in f64 and rounded (exact for one
// operation on f32 numbers), 16-bit types are rounded by scaling to a whole number.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "collectives/kernels/reduce.h"

namespace ronde::collectives::oracle {

using base::DType;
using base::ReduceOp;
using Bytes = std::vector<std::byte>;

// Copies an element. Each size has a branch of its own, so that none calls memcpy().
inline void copy_element(std::int64_t size, std::byte* to, const std::byte* from) {
  switch (size) {
    case 1:
      *to = *from;
      return;
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    default:
      std::memcpy(to, from, 8);
  }
}

inline std::uint64_t load(DType dtype, const std::byte* from, std::int64_t index) {
  std::uint64_t bits = 0;  // little endian
  const std::int64_t size = base::size_of(dtype);
  copy_element(size, reinterpret_cast<std::byte*>(&bits), from + index * size);
  return bits;
}

inline void store(DType dtype, std::byte* to, std::int64_t index, std::uint64_t bits) {
  const std::int64_t size = base::size_of(dtype);
  copy_element(size, to + index * size, reinterpret_cast<const std::byte*>(&bits));
}

// Returns 2^exponent, which is at most 1023. A multiplication by it rounds once, as ldexp() does,
// and takes a tenth of the time.
inline double two_to(int exponent) {
  if (exponent < -1022) return std::ldexp(1.0, exponent);
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// Decodes a binary format with the sign in front, by its definition.
inline double decode_small(std::uint64_t bits, int exponent_bits, int mantissa_bits) {
  const std::uint64_t mantissa = bits & ((1ULL << mantissa_bits) - 1);
  const auto exponent = static_cast<int>((bits >> mantissa_bits) & ((1ULL << exponent_bits) - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits >> (exponent_bits + mantissa_bits)) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const double fraction = static_cast<double>(mantissa) * two_to(-mantissa_bits);
  if (exponent == 0) return sign * fraction * two_to(1 - bias);
  return sign * (1.0 + fraction) * two_to(exponent - bias);
}

// The exponent of a number that is not 0, as ilogb() gives it, or that of the smallest normal f64.
inline int exponent_of(double magnitude) {
  return std::max(static_cast<int>(std::bit_cast<std::uint64_t>(magnitude) >> 52), 1) - 1023;
}

// Rounds a number of [0, 2^51], ties to even, as nearbyint() does: 2^52 more has no places left.
inline double rounded(double units) { return (units + 0x1p52) - 0x1p52; }

inline std::uint64_t encode_small(double value, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const std::uint64_t infinity = ((1ULL << exponent_bits) - 1) << mantissa_bits;
  const std::uint64_t sign = std::signbit(value) ? 1ULL << (exponent_bits + mantissa_bits) : 0;
  if (std::isnan(value)) return sign | infinity | (1ULL << (mantissa_bits - 1));
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int exponent = std::max(exponent_of(magnitude), 1 - bias);
  // The number is in units of the last place.
  const double units = rounded(magnitude * two_to(mantissa_bits - exponent));
  // A subnormal has exponent field 0, which is the smallest normal's place without the leading one.
  const auto field = static_cast<std::uint64_t>(exponent + bias - 1);
  const std::uint64_t bits = (field << mantissa_bits) + static_cast<std::uint64_t>(units);
  return sign | std::min(bits, infinity);
}

inline double decode(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::kF16:
      return decode_small(bits, 5, 10);
    case DType::kBf16:
      return decode_small(bits, 8, 7);
    case DType::kF32:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    default:
      return std::bit_cast<double>(bits);
  }
}

inline std::uint64_t encode(DType dtype, double value) {
  switch (dtype) {
    case DType::kF16:
      return encode_small(value, 5, 10);
    case DType::kBf16:
      return encode_small(value, 8, 7);
    case DType::kF32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    default:
      return std::bit_cast<std::uint64_t>(value);
  }
}

// Rounds to the type of the sum.
inline double to_sum(DType dtype, double value) {
  return dtype == DType::kF64 ? value : static_cast<double>(static_cast<float>(value));
}

inline double apply(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
    case ReduceOp::kMax: {
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
      const bool a_first = a < b || (a == b && std::signbit(a));
      return (op == ReduceOp::kMin) == a_first ? a : b;
    }
    default:
      return a + b;
  }
}

// What multiplies the i-th contribution, and the result.
inline double prescale_of(const Reduction& what, std::size_t i) {
  return to_sum(what.dtype, what.prescales.empty() ? what.prescale : what.prescales[i]);
}
inline double factor_of(const Reduction& what, std::size_t ranks) {
  if (what.op != ReduceOp::kAverage) return to_sum(what.dtype, what.postscale);
  const double parts = what.divisor != 0.0 ? what.divisor : static_cast<double>(ranks);
  return to_sum(what.dtype, what.postscale / parts);
}

// Reduces one element of a floating-point type; contributions are in the order of the reduction.
inline std::uint64_t reduce_floating(const Reduction& what,
                                     const std::vector<std::uint64_t>& contributions) {
  const DType dtype = what.dtype;
  const double factor = factor_of(what, contributions.size());
  const auto scaled = [&](std::size_t i) {
    return to_sum(dtype, decode(dtype, contributions[i]) * prescale_of(what, i));
  };
  if (contributions.size() == 1) {
    return encode(dtype, to_sum(dtype, scaled(0) * factor));
  }
  std::uint64_t sum = encode(dtype, scaled(0));
  for (std::size_t i = 1; i < contributions.size(); ++i) {
    const double own = decode(dtype, encode(dtype, scaled(i)));
    double next = to_sum(dtype, apply(what.op, decode(dtype, sum), own));
    if (i + 1 == contributions.size()) next = to_sum(dtype, next * factor);
    sum = encode(dtype, next);
  }
  return sum;
}

inline std::int64_t as_signed(DType dtype, std::uint64_t bits) {
  const auto shift = static_cast<unsigned>(64 - 8 * base::size_of(dtype));
  return static_cast<std::int64_t>(bits << shift) >> shift;
}

inline bool is_signed(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32 ||
         dtype == DType::kI64;
}

inline std::uint64_t reduce_integer(const Reduction& what,
                                    const std::vector<std::uint64_t>& contributions) {
  const auto less = [&](std::uint64_t a, std::uint64_t b) {
    return is_signed(what.dtype) ? as_signed(what.dtype, a) < as_signed(what.dtype, b) : a < b;
  };
  const auto shift = static_cast<unsigned>(64 - 8 * base::size_of(what.dtype));
  const auto wrap = [&](std::uint64_t x) { return x << shift >> shift; };
  std::uint64_t result = contributions[0];
  for (std::size_t i = 1; i < contributions.size(); ++i) {
    const std::uint64_t own = contributions[i];
    if (what.op == ReduceOp::kMin) {
      result = less(own, result) ? own : result;
    } else if (what.op == ReduceOp::kMax) {
      result = less(result, own) ? own : result;
    } else if (what.op == ReduceOp::kProduct) {
      result = wrap(result * own);
    } else if (what.op == ReduceOp::kBitAnd) {
      result &= own;
    } else if (what.op == ReduceOp::kBitOr) {
      result |= own;
    } else if (what.op == ReduceOp::kBitXor) {
      result ^= own;
    } else {
      result = wrap(result + own);
    }
  }
  if (what.op != ReduceOp::kAverage) return result;
  const auto ranks = what.divisor != 0.0 ? static_cast<std::int64_t>(what.divisor)
                                         : static_cast<std::int64_t>(contributions.size());
  if (is_signed(what.dtype)) {
    return wrap(static_cast<std::uint64_t>(as_signed(what.dtype, result) / ranks));
  }
  return result / static_cast<std::uint64_t>(ranks);
}

inline std::uint64_t reduce_bool(const Reduction& what,
                                 const std::vector<std::uint64_t>& contributions) {
  std::size_t truths = 0;
  for (const std::uint64_t bits : contributions) truths += bits != 0 ? 1 : 0;
  switch (what.op) {
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
      return truths == contributions.size() ? 1 : 0;
    case ReduceOp::kBitXor:
      return truths % 2;
    default:
      return truths > 0 ? 1 : 0;
  }
}

inline std::uint64_t reduce_element(const Reduction& what,
                                    const std::vector<std::uint64_t>& contributions) {
  if (what.dtype == DType::kBool) return reduce_bool(what, contributions);
  if (base::is_floating(what.dtype)) return reduce_floating(what, contributions);
  return reduce_integer(what, contributions);
}

// Reduces one element of a job on one host: the contributions are in rank order, and only the
// result is rounded to the dtype.
inline std::uint64_t reduce_element_of_host(const Reduction& what,
                                            const std::vector<std::uint64_t>& contributions) {
  if (!base::is_floating(what.dtype)) return reduce_element(what, contributions);
  const DType dtype = what.dtype;
  const double factor = factor_of(what, contributions.size());
  const auto scaled = [&](std::size_t i) {
    return to_sum(dtype, decode(dtype, contributions[i]) * prescale_of(what, i));
  };
  double sum = scaled(0);
  for (std::size_t i = 1; i < contributions.size(); ++i) {
    sum = to_sum(dtype, apply(what.op, sum, scaled(i)));
  }
  return encode(dtype, to_sum(dtype, sum * factor));
}

// Allreduces one tensor on one host; inputs[r] is rank r's.
inline Bytes allreduce_of_host(const Reduction& what, const std::vector<Bytes>& inputs) {
  const auto elements = static_cast<std::int64_t>(inputs[0].size()) / base::size_of(what.dtype);
  Bytes result(inputs[0].size());
  std::vector<std::uint64_t> contributions(inputs.size());
  for (std::int64_t i = 0; i < elements; ++i) {
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      contributions[rank] = load(what.dtype, inputs[rank].data(), i);
    }
    store(what.dtype, result.data(), i, reduce_element_of_host(what, contributions));
  }
  return result;
}

// Tells whether the bits are equal; any two NaNs count as equal.
inline bool same(DType dtype, std::uint64_t a, std::uint64_t b) {
  if (a == b) return true;
  return base::is_floating(dtype) && std::isnan(decode(dtype, a)) && std::isnan(decode(dtype, b));
}

// Returns the first element that differs, or -1 when none does.
inline std::int64_t first_difference(DType dtype, const Bytes& a, const Bytes& b) {
  if (a.size() != b.size()) return 0;
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0) return -1;
  const std::int64_t elements = static_cast<std::int64_t>(a.size()) / base::size_of(dtype);
  for (std::int64_t i = 0; i < elements; ++i) {
    if (!same(dtype, load(dtype, a.data(), i), load(dtype, b.data(), i))) return i;
  }
  return -1;
}

}  // namespace ronde::collectives::oracle
