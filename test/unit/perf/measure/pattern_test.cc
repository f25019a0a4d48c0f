// SPDX-License-Identifier: Apache-2.0
// The values and their check: a right result passes in every dtype and op, and each kind of wrong
// result is counted.
#include "examples/perf/measure/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace ronde::perf {
namespace {

using Bytes = std::vector<std::byte>;

const DType* dtype_named(std::string_view name) {
  for (const DType& each : all_dtypes()) {
    if (each.name == name || each.alias == name) return &each;
  }
  return nullptr;
}

const Op* op_named(std::string_view name) {
  for (const Op& each : all_ops()) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

Case case_of(Operation operation, const char* dtype, const char* op, std::size_t count, int rank,
             int ranks) {
  Case shape;
  shape.operation = operation;
  shape.dtype = dtype_named(dtype);
  shape.op = row_of(operation).reduces != 0 ? op_named(op) : &no_op();
  shape.count = count;
  shape.rank = rank;
  shape.ranks = ranks;
  return shape;
}

Bytes input_of(const Pattern& pattern, Case shape, int rank, std::uint64_t iteration) {
  shape.rank = rank;
  Bytes memory(shape.input_elements() * shape.dtype->size);
  pattern.write(pattern.input(shape, iteration), memory);
  return memory;
}

std::uint64_t wrong_in(const Pattern& pattern, const Case& shape, std::uint64_t iteration,
                       const Bytes& result) {
  std::uint64_t wrong = 0;
  std::size_t position = 0;
  for (const Run& run : pattern.expected(shape, iteration)) {
    const std::size_t size = shape.dtype->size;
    wrong += pattern.count_wrong(run, std::span(result).subspan(position, run.elements * size));
    position += run.elements * size;
  }
  EXPECT_EQ(position, result.size()) << "the runs do not cover the result";
  return wrong;
}

// Adds floats as a library would.
std::vector<float> sum_of(const Pattern& pattern, const Case& shape, std::uint64_t iteration) {
  std::vector<float> sum(shape.input_elements());
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const Bytes bytes = input_of(pattern, shape, rank, iteration);
    std::vector<float> values(sum.size());
    std::memcpy(values.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

Bytes bytes_of(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class PatternTest : public testing::Test {
 protected:
  const Case shape_ = case_of(Operation::kAllreduce, "float", "sum", 10'000, 1, 3);
  const Pattern pattern_{*shape_.dtype, *shape_.op, 3};
  std::vector<float> sum_ = sum_of(pattern_, shape_, 5);
};

TEST_F(PatternTest, TheSumOfTheRanksIsRight) {
  EXPECT_EQ(wrong_in(pattern_, shape_, 5, bytes_of(sum_)), 0U);
}

TEST_F(PatternTest, EachWrongElementIsCounted) {
  sum_[0] += 1;
  sum_[4093] += 1;
  sum_[9999] -= 1;
  EXPECT_EQ(wrong_in(pattern_, shape_, 5, bytes_of(sum_)), 3U);
}

TEST_F(PatternTest, TheResultOfAnotherIterationIsWrong) {
  EXPECT_GT(wrong_in(pattern_, shape_, 6, bytes_of(sum_)), 9'900U);
  EXPECT_GT(wrong_in(pattern_, shape_, 4, bytes_of(sum_)), 9'900U);
}

TEST_F(PatternTest, ADisplacedResultIsWrong) {
  for (const std::ptrdiff_t by : {1, 16, 1024, 4096, 8192}) {
    std::vector<float> displaced = sum_;
    std::rotate(displaced.begin(), displaced.begin() + by, displaced.end());
    EXPECT_GT(wrong_in(pattern_, shape_, 5, bytes_of(displaced)), 1'000U) << by;
  }
}

TEST_F(PatternTest, TheInputOfOneRankIsNotTheResult) {
  EXPECT_GT(wrong_in(pattern_, shape_, 5, input_of(pattern_, shape_, 1, 5)), 9'000U);
}

TEST(Pattern, AveragesMayBeRoundedElsewhere) {
  const Case shape = case_of(Operation::kAllreduce, "float", "avg", 5'000, 0, 7);
  const Pattern pattern(*shape.dtype, *shape.op, 7);
  std::vector<float> average = sum_of(pattern, shape, 1);
  for (float& value : average) value = value / 7.0F;  // not the same as times 1/7
  EXPECT_EQ(wrong_in(pattern, shape, 1, bytes_of(average)), 0U);
  average[3] *= 1.001F;
  EXPECT_EQ(wrong_in(pattern, shape, 1, bytes_of(average)), 1U);
}

// Decoded by the definition of the formats, every value is a whole number that they can hold.
TEST(Pattern, EncodesSixteenBitTypes) {
  struct Format {
    const char* name;
    int mantissa_bits;
    int bias;
    double largest;
  };
  for (const Format& format : {Format{"half", 10, 15, 2048}, Format{"bfloat16", 7, 127, 256}}) {
    const Case shape = case_of(Operation::kAllreduce, format.name, "sum", Pattern::kPeriod, 0, 1);
    const Pattern pattern(*shape.dtype, *shape.op, 1);
    const Bytes bytes = input_of(pattern, shape, 0, 0);
    std::set<double> values;
    for (std::size_t i = 0; i < Pattern::kPeriod; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, bytes.data() + 2 * i, 2);
      const int exponent = bits >> format.mantissa_bits;
      const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
      const double fraction = 1.0 + std::ldexp(mantissa, -format.mantissa_bits);
      values.insert(bits == 0 ? 0.0 : std::ldexp(fraction, exponent - format.bias));
    }
    EXPECT_EQ(*values.begin(), 0.0);
    EXPECT_LE(*values.rbegin(), format.largest);
    EXPECT_GT(*values.rbegin(), 0.9 * format.largest);
    EXPECT_GT(static_cast<double>(values.size()), 0.8 * format.largest);
    for (const double value : values) EXPECT_EQ(value, std::floor(value)) << format.name;
  }
}

TEST(Pattern, MovesTakeTheRightPartOfTheRightRank) {
  constexpr std::size_t kCount = 777;
  const Pattern pattern(*dtype_named("int32"), no_op(), 3);
  const Case gather = case_of(Operation::kAllgather, "int32", "sum", kCount, 2, 3);
  Bytes gathered;
  for (int rank = 0; rank < 3; ++rank) {
    const Bytes part = input_of(pattern, gather, rank, 9);
    gathered.insert(gathered.end(), part.begin(), part.end());
  }
  EXPECT_EQ(wrong_in(pattern, gather, 9, gathered), 0U);
  std::swap_ranges(gathered.begin(), gathered.begin() + 4 * kCount, gathered.begin() + 4 * kCount);
  EXPECT_GT(wrong_in(pattern, gather, 9, gathered), 1'000U);

  const Case exchange = case_of(Operation::kAllToAll, "int32", "sum", kCount, 1, 3);
  Bytes received;
  for (int rank = 0; rank < 3; ++rank) {
    const Bytes all = input_of(pattern, exchange, rank, 9);
    received.insert(received.end(), all.begin() + 4 * kCount, all.begin() + 8 * kCount);
  }
  EXPECT_EQ(wrong_in(pattern, exchange, 9, received), 0U);

  Case broadcast = case_of(Operation::kBroadcast, "int32", "sum", kCount, 0, 3);
  broadcast.root = 2;
  EXPECT_EQ(wrong_in(pattern, broadcast, 9, input_of(pattern, broadcast, 2, 9)), 0U);
  EXPECT_GT(wrong_in(pattern, broadcast, 9, input_of(pattern, broadcast, 0, 9)), 700U);
}

TEST(Pattern, AReduceScatterIsThePartOfTheSum) {
  constexpr std::size_t kCount = 3'000;
  const Case shape = case_of(Operation::kReduceScatter, "float", "sum", kCount, 2, 3);
  const Pattern pattern(*shape.dtype, *shape.op, 3);
  const std::vector<float> sum = sum_of(pattern, shape, 4);
  const std::vector<float> own(sum.begin() + 2 * kCount, sum.end());
  EXPECT_EQ(wrong_in(pattern, shape, 4, bytes_of(own)), 0U);
}

// A rank that is left out, for every dtype, op and several numbers of ranks.
TEST(Pattern, EveryRankMattersInEveryDTypeAndOp) {
  for (const DType& dtype : all_dtypes()) {
    for (const Op& op : all_ops()) {
      if (!valid(dtype, op)) continue;
      for (const int ranks : {2, 4, 8, 64}) {
        const Pattern all(dtype, op, ranks);
        const Pattern fewer(dtype, op, ranks - 1);
        Case shape = case_of(Operation::kAllreduce, "float", "sum", Pattern::kPeriod, 0, ranks);
        shape.dtype = &dtype;
        shape.op = &op;
        Bytes result(Pattern::kPeriod * dtype.size);
        fewer.write(fewer.expected(shape, 1)[0], result);
        EXPECT_GT(wrong_in(all, shape, 1, result), 0U)
            << dtype.name << " " << op.name << " of " << ranks;
      }
    }
  }
}

}  // namespace
}  // namespace ronde::perf
