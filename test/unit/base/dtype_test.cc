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
  EXPECT_EQ(reduce_op_from_value(5), std::nullopt);
  EXPECT_EQ(reduce_op_from_value(-1), std::nullopt);
}

TEST(DType, ABoolHasOnlyMinAndMax) {
  for (const ReduceOpRow& op : kReduceOps) {
    for (const DTypeRow& row : kDTypes) {
      const bool defined =
          row.dtype != DType::kBool || op.op == ReduceOp::kMin || op.op == ReduceOp::kMax;
      EXPECT_EQ(is_defined(row.dtype, op.op), defined) << row.name << ' ' << op.name;
    }
  }
}

}  // namespace
}  // namespace ronde::base
