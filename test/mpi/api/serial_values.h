// SPDX-License-Identifier: Apache-2.0
// Small numbers of every dtype, as bytes and back, and the results of operations on all ranks: the
// oracle of operations_test.cc, which knows only Ronde's dtypes and operations. Loops use pointers,
// since tests are not optimised: there the operators of vectors are calls.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include <ronde/ronde.h>

namespace serial_values {

using Values = std::vector<double>;
using Bytes = std::vector<unsigned char>;

struct DType {
  ronde_dtype dtype;
  const char* name;
  std::size_t size;
  bool is_integer;
  bool has_sign;
};
inline constexpr DType kDTypes[] = {
    {RONDE_U8, "u8", 1, true, false},     {RONDE_I8, "i8", 1, true, true},
    {RONDE_U16, "u16", 2, true, false},   {RONDE_I16, "i16", 2, true, true},
    {RONDE_U32, "u32", 4, true, false},   {RONDE_I32, "i32", 4, true, true},
    {RONDE_U64, "u64", 8, true, false},   {RONDE_I64, "i64", 8, true, true},
    {RONDE_F16, "f16", 2, false, true},   {RONDE_BF16, "bf16", 2, false, true},
    {RONDE_F32, "f32", 4, false, true},   {RONDE_F64, "f64", 8, false, true},
    {RONDE_BOOL, "bool", 1, true, false},
};

inline constexpr ronde_op kOps[] = {RONDE_AVERAGE, RONDE_SUM,  RONDE_MIN, RONDE_MAX,
                                    RONDE_PRODUCT, RONDE_BAND, RONDE_BOR, RONDE_BXOR};

inline bool is_bitwise(ronde_op op) { return op >= RONDE_BAND; }
inline bool is_defined(const DType& type, ronde_op op) {
  if (type.dtype == RONDE_BOOL) return is_bitwise(op) || op == RONDE_MIN || op == RONDE_MAX;
  if (op == RONDE_AVERAGE) return !type.is_integer || type.size >= 4;
  return type.is_integer || !is_bitwise(op);
}

// Small integers, which every dtype holds exactly, so that only an average is ever rounded.
inline Bytes encode(const DType& type, const Values& values) {
  Bytes bytes(values.size() * type.size);
  const double* const all = values.data();
  const std::size_t count = values.size();
  unsigned char* at = bytes.data();
  for (std::size_t i = 0; i < count; ++i, at += type.size) {
    const double value = all[i];
    if (type.is_integer) {
      const auto whole = static_cast<std::int64_t>(value);
      std::memcpy(at, &whole, type.size);  // little-endian: the low bytes come first
    } else if (type.dtype == RONDE_F64) {
      std::memcpy(at, &value, sizeof value);
    } else {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
      std::uint32_t shorter = bits;
      if (type.dtype == RONDE_BF16) shorter = bits >> 16U;
      if (type.dtype == RONDE_F16) {
        const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
        const std::uint32_t half = magnitude == 0 ? 0 : (magnitude - (112U << 23U)) >> 13U;
        shorter = (bits >> 31U) << 15U | half;
      }
      std::memcpy(at, &shorter, type.size);
    }
  }
  return bytes;
}

inline double decode_one(const DType& type, const unsigned char* at) {
  if (type.is_integer) {
    std::int64_t whole = 0;
    std::memcpy(&whole, at, type.size);
    const auto unused = static_cast<unsigned>(64 - 8 * type.size);
    if (type.has_sign) {
      whole = static_cast<std::int64_t>(static_cast<std::uint64_t>(whole) << unused) >> unused;
    }
    return static_cast<double>(whole);
  }
  if (type.dtype == RONDE_F64) {
    double value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, type.size);
  if (type.dtype == RONDE_BF16) bits <<= 16U;
  if (type.dtype == RONDE_F16) {
    const std::uint32_t magnitude = bits & 0x7FFFU;
    const std::uint32_t wide = magnitude == 0 ? 0 : (magnitude << 13U) + (112U << 23U);
    bits = (bits >> 15U) << 31U | wide;
  }
  return static_cast<double>(std::bit_cast<float>(bits));
}

inline Values decode(const DType& type, const void* data, std::size_t count) {
  Values values(count);
  double* const all = values.data();
  for (std::size_t i = 0; i < count; ++i) {
    all[i] = decode_one(type, static_cast<const unsigned char*>(data) + i * type.size);
  }
  return values;
}

inline double value_of(const DType& type, int rank, std::size_t i) {
  const auto small = (static_cast<std::size_t>(rank) * 5 + i * 3 + i / 7) % 3;
  if (type.dtype == RONDE_BOOL) return small == 0 ? 0 : 1;
  const auto value = static_cast<double>(small + 1);
  return type.has_sign && i % 2 == 1 ? -value : value;
}

inline Values contribution(const DType& type, int rank, std::size_t count) {
  Values values(count);
  double* const all = values.data();
  for (std::size_t i = 0; i < count; ++i) all[i] = value_of(type, rank, i);
  return values;
}

inline double combine(ronde_op op, double a, double b) {
  const auto x = static_cast<std::int64_t>(a);
  const auto y = static_cast<std::int64_t>(b);
  switch (op) {
    case RONDE_AVERAGE:
    case RONDE_SUM:
      return a + b;
    case RONDE_MIN:
      return std::min(a, b);
    case RONDE_MAX:
      return std::max(a, b);
    case RONDE_PRODUCT:
      return a * b;
    case RONDE_BAND:
      return static_cast<double>(x & y);
    case RONDE_BOR:
      return static_cast<double>(x | y);
    case RONDE_BXOR:
      return static_cast<double>(x ^ y);
  }
  return 0;
}

inline Values reduced(const DType& type, ronde_op op, int ranks, std::size_t count) {
  Values result = contribution(type, 0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    double* const all = result.data();
    for (std::size_t i = 0; i < count; ++i) all[i] = combine(op, all[i], value_of(type, rank, i));
  }
  if (op != RONDE_AVERAGE) return result;
  for (double& value : result) {
    value /= ranks;
    if (type.is_integer) value = std::trunc(value);
  }
  return result;
}

inline void expect_values(const DType& type, const Values& got, const Values& expected,
                          bool rounded) {
  ASSERT_EQ(got.size(), expected.size());
  // An average of a 16-bit float is rounded more than once when every rank counts as a host.
  const double tolerance = !rounded ? 0 : (type.size == 2 ? 0.02 : 1e-6);
  const double* const found = got.data();
  const double* const wanted = expected.data();
  const std::size_t count = got.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (found[i] == wanted[i]) continue;
    ASSERT_NEAR(found[i], wanted[i], tolerance * std::abs(wanted[i])) << "element " << i;
  }
}

inline std::vector<std::int64_t> uneven(int ranks, std::int64_t scale) {
  std::vector<std::int64_t> splits;
  for (std::int64_t r = 0; r < ranks; ++r) splits.push_back((ranks - r) % 3 * scale + r);
  return splits;
}

inline std::int64_t total(const std::vector<std::int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

}  // namespace serial_values
