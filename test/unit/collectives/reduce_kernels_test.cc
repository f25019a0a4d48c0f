// SPDX-License-Identifier: Apache-2.0
#include "collectives/reduce_kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <string>

#include "test/unit/collectives/rule_oracle.h"

namespace ronde::collectives {
namespace {

using base::DType;
using base::ReduceOp;
using Memory = std::vector<std::byte>;

struct Case {
  DType dtype;
  ReduceOp op;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const base::DTypeRow& dtype : base::kDTypes) {
    for (const base::ReduceOpRow& op : base::kReduceOps) {
      if (base::is_defined(dtype.dtype, op.op)) cases.push_back({dtype.dtype, op.op});
    }
  }
  return cases;
}

// Random bit patterns: for floating-point types that is all magnitudes, subnormals, infinities and
// NaN; and, often, the special values.
std::uint64_t random_element(DType dtype, std::mt19937_64& random) {
  const auto unused = static_cast<unsigned>(64 - 8 * base::size_of(dtype));
  if (dtype == DType::kBool) return random() % 2;
  if (base::is_floating(dtype) && random() % 2 == 0) {
    constexpr std::array<double, 10> kSpecial{0.0,  -0.0, 1.0,    -1.0,     0.1,
                                              -3.0, 1e4,  6.1e-5, INFINITY, NAN};
    return oracle::encode(dtype, kSpecial[random() % kSpecial.size()]);
  }
  return random() >> unused;
}

class ReduceKernelsTest : public testing::TestWithParam<Case> {
 protected:
  // Reduces the contributions of `ranks` ranks by a chain of kernels, as a ring does, and serially.
  static void compare(const Reduction& what, int ranks, std::int64_t elements,
                      std::size_t misaligned, std::mt19937_64& random) {
    const auto bytes = static_cast<std::size_t>(elements * base::size_of(what.dtype));
    std::vector<Memory> inputs(static_cast<std::size_t>(ranks), Memory(bytes + misaligned));
    for (Memory& input : inputs) {
      for (std::int64_t i = 0; i < elements; ++i) {
        oracle::store(what.dtype, input.data() + misaligned, i, random_element(what.dtype, random));
      }
    }
    const ReduceKernels& kernels = kernels_for(what.dtype, what.op);
    const Scaling scaling = scaling_of(what, ranks);
    Memory sum = inputs[0];
    std::byte* accumulator = sum.data() + misaligned;
    if (ranks == 1) {
      kernels.only(accumulator, elements, scaling);
    } else {
      kernels.first(accumulator, elements, scaling);
    }
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      const auto kernel = rank + 1 == inputs.size() ? kernels.last_hop : kernels.combine;
      kernel(accumulator, inputs[rank].data() + misaligned, elements, scaling);
    }
    for (std::int64_t i = 0; i < elements; ++i) {
      std::vector<std::uint64_t> contributions;
      for (const Memory& input : inputs) {
        contributions.push_back(oracle::load(what.dtype, input.data() + misaligned, i));
      }
      const std::uint64_t expected = oracle::reduce_element(what, contributions);
      const std::uint64_t actual = oracle::load(what.dtype, accumulator, i);
      ASSERT_TRUE(oracle::same(what.dtype, expected, actual))
          << "element " << i << " of " << elements << ", " << ranks << " ranks: " << std::hex
          << actual << " instead of " << expected << ", first contribution " << contributions[0]
          << ", last " << contributions.back();
    }
  }
};

TEST_P(ReduceKernelsTest, AgreesWithTheOracleAtEveryLength) {
  std::mt19937_64 random(3);
  for (std::int64_t elements = 0; elements <= 257; ++elements) {
    const Reduction what{.dtype = GetParam().dtype, .op = GetParam().op};
    const int ranks = 1 + static_cast<int>(elements % 4);
    compare(what, ranks, elements, static_cast<std::size_t>(elements) % 3, random);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_P(ReduceKernelsTest, ScaleFactorsAndAverages) {
  std::mt19937_64 random(4);
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const double prescale : {1.0, 0.1, 3.0}) {
      for (const double postscale : {1.0, 0.3, static_cast<double>(ranks)}) {
        Reduction what{.dtype = GetParam().dtype, .op = GetParam().op};
        if (base::is_floating(what.dtype)) {
          what.prescale = prescale;
          what.postscale = postscale;
        }
        compare(what, ranks, 100, 0, random);
        ASSERT_FALSE(HasFatalFailure()) << prescale << " " << postscale;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReduceKernelsTest, testing::ValuesIn(all_cases()),
                         [](const auto& one) {
                           return std::string(base::name_of(one.param.dtype)) + "_" +
                                  std::string(base::name_of(one.param.op));
                         });

template <class T>
T reduced(DType dtype, ReduceOp op, T a, T b) {
  const Scaling scaling = scaling_of({.dtype = dtype, .op = op}, 2);
  kernels_for(dtype, op).last_hop(reinterpret_cast<std::byte*>(&a),
                                  reinterpret_cast<const std::byte*>(&b), 1, scaling);
  return a;
}

TEST(ReduceKernels, MinusZeroIsBelowZero) {
  for (const auto& [a, b] : {std::pair(-0.0F, 0.0F), std::pair(0.0F, -0.0F)}) {
    EXPECT_TRUE(std::signbit(reduced(DType::kF32, ReduceOp::kMin, a, b)));
    EXPECT_FALSE(std::signbit(reduced(DType::kF32, ReduceOp::kMax, a, b)));
  }
}

TEST(ReduceKernels, ANanAnywhereIsANanInMinAndMax) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_TRUE(std::isnan(reduced<double>(DType::kF64, op, NAN, 1.0)));
    EXPECT_TRUE(std::isnan(reduced<double>(DType::kF64, op, 1.0, NAN)));
    EXPECT_TRUE(std::isnan(reduced<double>(DType::kF64, op, -INFINITY, NAN)));
  }
}

TEST(ReduceKernels, IntegersWrapAround) {
  EXPECT_EQ(reduced<std::int32_t>(DType::kI32, ReduceOp::kSum, INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(reduced<std::int64_t>(DType::kI64, ReduceOp::kProduct, INT64_MAX, 2), -2);
  EXPECT_EQ(reduced<std::uint8_t>(DType::kU8, ReduceOp::kSum, 200, 100), 44);
  // 65535 * 65535 does not fit a signed int, to which narrow types are promoted.
  EXPECT_EQ(reduced<std::uint16_t>(DType::kU16, ReduceOp::kProduct, 65535, 65535), 1);
}

TEST(ReduceKernels, AveragesOfIntegersTruncateTowardsZero) {
  EXPECT_EQ(reduced<std::int32_t>(DType::kI32, ReduceOp::kAverage, -2, -1), -1);
  EXPECT_EQ(reduced<std::int32_t>(DType::kI32, ReduceOp::kAverage, 2, 1), 1);
  EXPECT_EQ(reduced<std::int8_t>(DType::kI8, ReduceOp::kAverage, -128, 0), -64);
}

TEST(ReduceKernels, ManyMoreRanksThanANarrowIntegerHolds) {
  std::int8_t value = 100;
  const std::int8_t own = 27;
  const Scaling scaling = scaling_of({.dtype = DType::kI8, .op = ReduceOp::kAverage}, 1000);
  kernels_for(DType::kI8, ReduceOp::kAverage)
      .last_hop(reinterpret_cast<std::byte*>(&value), reinterpret_cast<const std::byte*>(&own), 1,
                scaling);
  EXPECT_EQ(value, 0);
}

TEST(ReduceKernels, SixteenBitsRoundAtEveryHop) {
  // 2048 + 1 is a tie in f16 and rounds to 2048, twice; summed in f32 it would be 2050.
  const Reduction what{.dtype = DType::kF16, .op = ReduceOp::kSum};
  const std::uint16_t one = 0x3c00;
  std::uint16_t sum = 0x6800;  // 2048
  const Scaling scaling = scaling_of(what, 3);
  const ReduceKernels& kernels = kernels_for(what.dtype, what.op);
  auto* accumulator = reinterpret_cast<std::byte*>(&sum);
  kernels.combine(accumulator, reinterpret_cast<const std::byte*>(&one), 1, scaling);
  kernels.last_hop(accumulator, reinterpret_cast<const std::byte*>(&one), 1, scaling);
  EXPECT_EQ(sum, 0x6800);
}

TEST(ReduceKernels, TheFactorIsOneMultiplyInTheTypeOfTheSum) {
  const Reduction f32{
      .dtype = DType::kF32, .op = ReduceOp::kAverage, .prescale = 0.1, .postscale = 7.0};
  EXPECT_EQ(scaling_of(f32, 3).factor, static_cast<double>(static_cast<float>(7.0 / 3)));
  EXPECT_EQ(scaling_of(f32, 3).prescale, static_cast<double>(0.1F));
  Reduction f64 = f32;
  f64.dtype = DType::kF64;
  EXPECT_EQ(scaling_of(f64, 3).factor, 7.0 / 3);
  // The average of f16 is scaled before it is rounded: 2048 + 3 is no f16, half of it is.
  EXPECT_EQ(reduced<std::uint16_t>(DType::kF16, ReduceOp::kAverage, 0x6800, 0x4200), 0x6402);
}

TEST(ReduceKernels, ABoolIsTrueWhateverItsByte) {
  EXPECT_EQ(reduced<std::uint8_t>(DType::kBool, ReduceOp::kMin, 2, 1), 1);
  EXPECT_EQ(reduced<std::uint8_t>(DType::kBool, ReduceOp::kMax, 0, 4), 1);
  EXPECT_EQ(reduced<std::uint8_t>(DType::kBool, ReduceOp::kMax, 0, 0), 0);
}

using ReduceKernelsDeathTest = testing::Test;

TEST(ReduceKernelsDeathTest, UndefinedReductionsAreBugs) {
  EXPECT_DEATH((void)kernels_for(DType::kBool, ReduceOp::kSum), "not defined");
  EXPECT_DEATH((void)scaling_of({.dtype = DType::kI32, .op = ReduceOp::kSum, .prescale = 2.0}, 2),
               "cannot be scaled");
}

}  // namespace
}  // namespace ronde::collectives
