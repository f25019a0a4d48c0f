// SPDX-License-Identifier: Apache-2.0
// The table of data types and reduce operations.
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string_view>

namespace ronde::base {
namespace {

TEST(DType, EveryRowIsAtItsOwnNumber) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kDTypes[i].dtype), i);
    names.insert(kDTypes[i].name);
  }
  EXPECT_EQ(names.size(), kDTypes.size());
  for (std::size_t i = 0; i < kReduceOps.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kReduceOps[i].op), i);
  }
}

TEST(DType, SizesAndNames) {
  for (const DTypeRow& row : kDTypes) {
    // The digits of a name are its bits.
    const std::size_t digits = row.name.find_first_of("0123456789");
    const std::int64_t bits =
        digits == std::string_view::npos ? 8 : std::stoi(std::string(row.name.substr(digits)));
    EXPECT_EQ(size_of(row.dtype), bits / 8) << row.name;
    EXPECT_EQ(name_of(row.dtype), row.name);
  }
  EXPECT_EQ(name_of(DType::kBf16), "bf16");
  EXPECT_EQ(name_of(DType::kBool), "bool");
  EXPECT_EQ(name_of(ReduceOp::kAverage), "average");
  EXPECT_EQ(name_of(ReduceOp::kProduct), "product");
}

TEST(DType, WhichAreFloating) {
  for (const DTypeRow& row : kDTypes) {
    const bool floating = row.dtype == DType::kF16 || row.dtype == DType::kBf16 ||
                          row.dtype == DType::kF32 || row.dtype == DType::kF64;
    EXPECT_EQ(is_floating(row.dtype), floating) << row.name;
  }
}

TEST(DType, ValuesFromOutside) {
  EXPECT_EQ(dtype_from_value(0), DType::kU8);
  EXPECT_EQ(dtype_from_value(12), DType::kBool);
  EXPECT_EQ(dtype_from_value(13), std::nullopt);
  EXPECT_EQ(dtype_from_value(-1), std::nullopt);
  EXPECT_EQ(dtype_from_value(1LL << 40), std::nullopt);
  EXPECT_EQ(reduce_op_from_value(0), ReduceOp::kAverage);
  EXPECT_EQ(reduce_op_from_value(4), ReduceOp::kProduct);
  EXPECT_EQ(reduce_op_from_value(7), ReduceOp::kBitXor);
  EXPECT_EQ(reduce_op_from_value(8), std::nullopt);
  EXPECT_EQ(reduce_op_from_value(-1), std::nullopt);
}

TEST(DType, WhichOperationsAreDefined) {
  for (const DTypeRow& row : kDTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct}) {
      EXPECT_EQ(is_defined(row.dtype, op), row.dtype != DType::kBool) << row.name << name_of(op);
    }
    // The sum of two ranks of 8 or 16 bits wraps, and the average with it.
    EXPECT_EQ(is_defined(row.dtype, ReduceOp::kAverage), is_floating(row.dtype) || row.size >= 4)
        << row.name;
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      EXPECT_TRUE(is_defined(row.dtype, op)) << row.name << name_of(op);
    }
    for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
      EXPECT_EQ(is_defined(row.dtype, op), !is_floating(row.dtype)) << row.name << name_of(op);
    }
  }
}

TEST(DType, WhichOperationsAreBitwise) {
  for (const ReduceOpRow& row : kReduceOps) {
    EXPECT_EQ(is_bitwise(row.op), row.name.front() == 'b') << row.name;
  }
}

TEST(DType, WhatTravelsWhenCompressed) {
  EXPECT_EQ(wire_dtype(DType::kF32, Compression::kNone), DType::kF32);
  EXPECT_EQ(wire_dtype(DType::kF32, Compression::kBf16), DType::kBf16);
  EXPECT_EQ(wire_dtype(DType::kF32, Compression::kF16), DType::kF16);
  EXPECT_EQ(name_of(Compression::kNone), "none");
  EXPECT_EQ(name_of(Compression::kBf16), "bf16");
  EXPECT_EQ(name_of(Compression::kF16), "f16");
  EXPECT_EQ(compression_from_value(2), Compression::kF16);
  EXPECT_EQ(compression_from_value(3), std::nullopt);
  EXPECT_EQ(compression_from_value(-1), std::nullopt);
}

}  // namespace
}  // namespace ronde::base
