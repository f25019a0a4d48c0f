// SPDX-License-Identifier: Apache-2.0
// The data types and reduce operations, as one table: names, sizes, and which operation is defined
// for which type. The values are part of the C ABI.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/numbers.h"

namespace ronde::base {

enum class DType : std::uint8_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kU64 = 6,
  kI64 = 7,
  kF16 = 8,
  kBf16 = 9,
  kF32 = 10,
  kF64 = 11,
  kBool = 12,
};

enum class ReduceOp : std::uint8_t {
  kAverage = 0,
  kSum = 1,
  kMin = 2,
  kMax = 3,
  kProduct = 4,
  kBitAnd = 5,
  kBitOr = 6,
  kBitXor = 7,
};

enum class DTypeKind : std::uint8_t { kInteger, kFloating, kBoolean };

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::int64_t size;  // bytes
  DTypeKind kind;
};

inline constexpr std::array<DTypeRow, 13> kDTypes{{
    {DType::kU8, "u8", 1, DTypeKind::kInteger},
    {DType::kI8, "i8", 1, DTypeKind::kInteger},
    {DType::kU16, "u16", 2, DTypeKind::kInteger},
    {DType::kI16, "i16", 2, DTypeKind::kInteger},
    {DType::kU32, "u32", 4, DTypeKind::kInteger},
    {DType::kI32, "i32", 4, DTypeKind::kInteger},
    {DType::kU64, "u64", 8, DTypeKind::kInteger},
    {DType::kI64, "i64", 8, DTypeKind::kInteger},
    {DType::kF16, "f16", 2, DTypeKind::kFloating},
    {DType::kBf16, "bf16", 2, DTypeKind::kFloating},
    {DType::kF32, "f32", 4, DTypeKind::kFloating},
    {DType::kF64, "f64", 8, DTypeKind::kFloating},
    {DType::kBool, "bool", 1, DTypeKind::kBoolean},
}};

struct ReduceOpRow {
  ReduceOp op;
  std::string_view name;
};

inline constexpr std::array<ReduceOpRow, 8> kReduceOps{{
    {ReduceOp::kAverage, "average"},
    {ReduceOp::kSum, "sum"},
    {ReduceOp::kMin, "min"},
    {ReduceOp::kMax, "max"},
    {ReduceOp::kProduct, "product"},
    {ReduceOp::kBitAnd, "band"},
    {ReduceOp::kBitOr, "bor"},
    {ReduceOp::kBitXor, "bxor"},
}};

[[nodiscard]] constexpr const DTypeRow& row(DType dtype) {
  return kDTypes[static_cast<std::size_t>(dtype)];
}
[[nodiscard]] constexpr std::int64_t size_of(DType dtype) { return row(dtype).size; }
[[nodiscard]] constexpr std::string_view name_of(DType dtype) { return row(dtype).name; }
[[nodiscard]] constexpr std::string_view name_of(ReduceOp op) {
  return kReduceOps[static_cast<std::size_t>(op)].name;
}
[[nodiscard]] constexpr bool is_floating(DType dtype) {
  return row(dtype).kind == DTypeKind::kFloating;
}

// These check values that came from outside; they return nothing for a value that names no row.
[[nodiscard]] constexpr std::optional<DType> dtype_from_value(std::int64_t value) {
  if (value < 0 || value >= static_cast<std::int64_t>(kDTypes.size())) return std::nullopt;
  return static_cast<DType>(value);
}
[[nodiscard]] constexpr std::optional<ReduceOp> reduce_op_from_value(std::int64_t value) {
  if (value < 0 || value >= static_cast<std::int64_t>(kReduceOps.size())) return std::nullopt;
  return static_cast<ReduceOp>(value);
}

[[nodiscard]] constexpr bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
}

// Which operations are defined: arithmetic on numbers, bitwise ones on integers and bools. A bool
// has no sum, average or product; its min is "and", its max "or", and its bits are one: bitwise
// operations see 0 or 1. Integers of 8 and 16 bits have no average: the sum of two ranks may wrap
// around already, and the average would be wrong in silence.
[[nodiscard]] constexpr bool is_defined(DType dtype, ReduceOp op) {
  switch (row(dtype).kind) {
    case DTypeKind::kInteger:
      return op != ReduceOp::kAverage || size_of(dtype) >= 4;
    case DTypeKind::kFloating:
      return !is_bitwise(op);
    case DTypeKind::kBoolean:
      return is_bitwise(op) || op == ReduceOp::kMin || op == ReduceOp::kMax;
  }
  return false;
}

// The type in which elements of an f32 tensor travel between ranks.
enum class Compression : std::uint8_t {
  kNone = 0,
  kBf16 = 1,
  kF16 = 2,
};

[[nodiscard]] constexpr std::string_view name_of(Compression compression) {
  constexpr std::array<std::string_view, 3> kNames{"none", "bf16", "f16"};
  return kNames[static_cast<std::size_t>(compression)];
}
// The dtype that travels, for tensors of `dtype`.
[[nodiscard]] constexpr DType wire_dtype(DType dtype, Compression compression) {
  if (compression == Compression::kNone) return dtype;
  return compression == Compression::kBf16 ? DType::kBf16 : DType::kF16;
}
[[nodiscard]] constexpr std::optional<Compression> compression_from_value(std::int64_t value) {
  if (value < 0 || value > 2) return std::nullopt;
  return static_cast<Compression>(value);
}

}  // namespace ronde::base
