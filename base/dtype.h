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

inline constexpr std::array<ReduceOpRow, 5> kReduceOps{{
    {ReduceOp::kAverage, "average"},
    {ReduceOp::kSum, "sum"},
    {ReduceOp::kMin, "min"},
    {ReduceOp::kMax, "max"},
    {ReduceOp::kProduct, "product"},
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

// Values that came from outside; nothing when they name no row.
[[nodiscard]] constexpr std::optional<DType> dtype_from_value(std::int64_t value) {
  if (value < 0 || value >= static_cast<std::int64_t>(kDTypes.size())) return std::nullopt;
  return static_cast<DType>(value);
}
[[nodiscard]] constexpr std::optional<ReduceOp> reduce_op_from_value(std::int64_t value) {
  if (value < 0 || value >= static_cast<std::int64_t>(kReduceOps.size())) return std::nullopt;
  return static_cast<ReduceOp>(value);
}

// Which operations are defined: everything on numbers; a bool has no sum, average or product
// (min is "and", max is "or").
[[nodiscard]] constexpr bool is_defined(DType dtype, ReduceOp op) {
  return row(dtype).kind != DTypeKind::kBoolean || op == ReduceOp::kMin || op == ReduceOp::kMax;
}

}  // namespace ronde::base
