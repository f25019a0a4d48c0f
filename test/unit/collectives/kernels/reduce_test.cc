// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/reduce.h"

#include <gtest/gtest.h>

#include "test/unit/collectives/kernels/support.h"

namespace ronde::collectives {
namespace {

using base::DType;
using base::ReduceOp;
using kernel_test::Case;
using kernel_test::GuardedBytes;
using kernel_test::kMisalignments;
using oracle::Bytes;

// Reduces contributions by a chain of kernels, as a ring does. `inputs` and `expected` have at
// least `elements` elements.
struct Chain {
  Reduction what;
  std::vector<Bytes> inputs;
  Bytes expected;

  Chain(const Reduction& reduction, std::size_t ranks, std::int64_t elements, unsigned seed)
      : what(reduction) {
    std::mt19937_64 random(seed);
    const auto bytes = static_cast<std::size_t>(elements * base::size_of(what.dtype));
    inputs.assign(ranks, Bytes(bytes));
    expected.resize(bytes);
    for (std::int64_t i = 0; i < elements; ++i) {
      std::vector<std::uint64_t> contributions;
      for (Bytes& input : inputs) {
        contributions.push_back(kernel_test::random_element(what.dtype, ranks, random));
        oracle::store(what.dtype, input.data(), i, contributions.back());
      }
      oracle::store(what.dtype, expected.data(), i, oracle::reduce_element(what, contributions));
    }
  }

  void check(InstructionSet set, std::int64_t elements, std::size_t alignment) const {
    const auto bytes = static_cast<std::size_t>(elements * base::size_of(what.dtype));
    const ReduceKernels& kernels = kernels_for(set, what.dtype, what.op);
    const Scaling scaling = scaling_of(what, static_cast<int>(inputs.size()));
    const auto misaligned = [&](std::size_t by) {
      return kMisalignments[(alignment + by) % kMisalignments.size()];
    };
    GuardedBytes sum(misaligned(0), std::span(inputs[0]).first(bytes));
    if (inputs.size() == 1) {
      kernels.only(sum.data(), elements, scaling);
    } else {
      kernels.first(sum.data(), elements, scaling);
    }
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      GuardedBytes own(misaligned(5 * rank), std::span(inputs[rank]).first(bytes), std::byte{0x3e});
      const auto kernel = rank + 1 == inputs.size() ? kernels.last_hop : kernels.combine;
      kernel(sum.data(), own.data(), elements, scaling);
      ASSERT_TRUE(own.guards_hold());
    }
    ASSERT_TRUE(sum.guards_hold()) << kernel_test::name_of(set) << " wrote outside: " << elements;
    const auto wanted = std::span(expected).first(bytes);
    const std::int64_t at = kernel_test::first_difference(what.dtype, wanted, sum.content());
    ASSERT_EQ(at, -1) << kernel_test::name_of(set) << ", " << inputs.size() << " ranks, "
                      << elements << " elements: " << std::hex
                      << oracle::load(what.dtype, sum.content().data(), at) << " instead of "
                      << oracle::load(what.dtype, wanted.data(), at);
  }
};

class ReduceKernelsTest : public testing::TestWithParam<Case> {};

TEST_P(ReduceKernelsTest, AgreesWithTheOracleAtEveryLength) {
  for (const std::size_t ranks : {1U, 2U, 3U, 4U}) {
    const Chain chain({.dtype = GetParam().dtype, .op = GetParam().op}, ranks, 257, 3);
    for (const InstructionSet set : kernel_test::available_sets()) {
      for (std::int64_t elements = 0; elements <= 257; elements += kernel_test::kLengthStep) {
        chain.check(set, elements, static_cast<std::size_t>(elements));
        ASSERT_FALSE(HasFatalFailure());
      }
    }
  }
}

TEST_P(ReduceKernelsTest, AtEveryMisalignment) {
  const Chain chain({.dtype = GetParam().dtype, .op = GetParam().op}, 2, 9001, 5);
  for (const InstructionSet set : kernel_test::available_sets()) {
    for (std::size_t alignment = 0; alignment < kMisalignments.size(); ++alignment) {
      // The longest has more than one of the blocks in which averages are divided.
      for (const std::int64_t elements : {31, 97, 9001}) {
        chain.check(set, elements, alignment);
        ASSERT_FALSE(HasFatalFailure());
      }
    }
  }
}

TEST_P(ReduceKernelsTest, ScaleFactorsAndAverages) {
  for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
    for (const double prescale : {1.0, 0.1, 3.0}) {
      for (const double postscale : {1.0, 0.3, static_cast<double>(ranks)}) {
        Reduction what{.dtype = GetParam().dtype, .op = GetParam().op};
        if (base::is_floating(what.dtype)) {
          what.prescale = prescale;
          what.postscale = postscale;
        }
        const Chain chain(what, ranks, 100, 4);
        for (const InstructionSet set : kernel_test::available_sets()) {
          chain.check(set, 100, ranks);
          ASSERT_FALSE(HasFatalFailure()) << prescale << " " << postscale;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReduceKernelsTest, testing::ValuesIn(kernel_test::all_cases()),
                         [](const auto& one) { return kernel_test::name_of(one.param); });

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
  EXPECT_EQ(reduced<std::int64_t>(DType::kI64, ReduceOp::kAverage, -128, -1), -64);
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

TEST(ReduceKernels, TheBitsOfABoolAreOne) {
  EXPECT_EQ(reduced<std::uint8_t>(DType::kBool, ReduceOp::kBitAnd, 2, 1), 1);
  EXPECT_EQ(reduced<std::uint8_t>(DType::kBool, ReduceOp::kBitOr, 2, 4), 1);
  EXPECT_EQ(reduced<std::uint8_t>(DType::kBool, ReduceOp::kBitXor, 2, 1), 0);
  EXPECT_EQ(reduced<std::uint8_t>(DType::kI8, ReduceOp::kBitXor, 2, 1), 3);
}

TEST(ReduceKernels, TheBestInstructionSetIsTheOneThatRuns) {
  for (const Case& one : kernel_test::all_cases()) {
    EXPECT_EQ(&kernels_for(one.dtype, one.op),
              &kernels_for(best_instruction_set(), one.dtype, one.op));
  }
}

TEST(ReduceKernels, ABoolIsTrueWhateverItsByte) {
  EXPECT_EQ(reduced<std::uint8_t>(DType::kBool, ReduceOp::kMin, 2, 1), 1);
  EXPECT_EQ(reduced<std::uint8_t>(DType::kBool, ReduceOp::kMax, 0, 4), 1);
  EXPECT_EQ(reduced<std::uint8_t>(DType::kBool, ReduceOp::kMax, 0, 0), 0);
}

using ReduceKernelsDeathTest = testing::Test;

TEST(ReduceKernelsDeathTest, UndefinedReductionsAreBugs) {
  EXPECT_DEATH((void)kernels_for(DType::kBool, ReduceOp::kSum), "not defined");
  EXPECT_DEATH((void)kernels_for(DType::kF32, ReduceOp::kBitAnd), "not defined");
  EXPECT_DEATH((void)kernels_for(static_cast<InstructionSet>(7), DType::kF32, ReduceOp::kSum),
               "lacks the instruction set");
  EXPECT_DEATH((void)scaling_of({.dtype = DType::kI32, .op = ReduceOp::kSum, .prescale = 2.0}, 2),
               "cannot be scaled");
}

}  // namespace
}  // namespace ronde::collectives
