// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "test/unit/collectives/kernels/float16_numbers.h"
#include "test/unit/collectives/rule_oracle.h"

namespace ronde::collectives {
namespace {

using base::DType;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint16_t converted(DType dtype, float value) {
  return dtype == DType::kF16 ? to_f16(value).bits : to_bf16(value).bits;
}
float widened(DType dtype, std::uint16_t bits) {
  return dtype == DType::kF16 ? to_f32(Float16{bits}) : to_f32(BFloat16{bits});
}

class Float16Test : public testing::TestWithParam<DType> {
 protected:
  // Expects that `value` is converted by the definition of rounding.
  static void expect_converts(float value) {
    const DType dtype = GetParam();
    const std::uint64_t expected = oracle::encode(dtype, static_cast<double>(value));
    const std::uint16_t actual = converted(dtype, value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(oracle::decode(dtype, actual))) << std::hex << bits_of(value);
    } else {
      ASSERT_EQ(actual, expected) << std::hex << bits_of(value);
    }
  }
};

TEST_P(Float16Test, EveryValueWidensExactly) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float wide = widened(GetParam(), static_cast<std::uint16_t>(bits));
    const auto expected = static_cast<float>(oracle::decode(GetParam(), bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << std::hex << bits;
    } else {
      ASSERT_EQ(bits_of(wide), bits_of(expected)) << std::hex << bits;
      ASSERT_EQ(converted(GetParam(), wide), bits) << "there and back";
    }
  }
}

TEST_P(Float16Test, TiesAndTheirNeighboursRound) {
  for (std::uint32_t bits = 0; bits < 0xffff; ++bits) {
    const double low = oracle::decode(GetParam(), bits);
    const double high = oracle::decode(GetParam(), bits + 1);
    if (!std::isfinite(low) || std::isnan(high)) continue;
    // Half way to infinity is half a last place beyond the largest number.
    const double step =
        std::isfinite(high) ? high - low : low - oracle::decode(GetParam(), bits - 1);
    const auto tie = static_cast<float>(low + step / 2);
    expect_converts(tie);
    expect_converts(std::nextafterf(tie, 0.0F));
    expect_converts(std::nextafterf(tie, tie * 2));
  }
}

TEST_P(Float16Test, RandomBitPatternsRound) {
  std::mt19937 random(11);
  for (int i = 0; i < 2'000'000; ++i) {
    expect_converts(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
}

TEST_P(Float16Test, EveryNanStaysANan) {
  for (std::uint32_t payload = 1; payload < (1U << 23U); payload += 257) {
    expect_converts(std::bit_cast<float>(0x7f800000U | payload));
    expect_converts(std::bit_cast<float>(0xff800000U | payload));
  }
  expect_converts(std::bit_cast<float>(0x7fffffffU));
  expect_converts(std::bit_cast<float>(0x7f800001U));
}

TEST(Float16, KnownValues) {
  EXPECT_EQ(to_f16(1.0F).bits, 0x3c00);
  EXPECT_EQ(to_f16(65504.0F).bits, 0x7bff);
  EXPECT_EQ(to_f16(65519.996F).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(to_f16(0x1p-24F).bits, 0x0001);
  EXPECT_EQ(to_f16(0x1p-25F).bits, 0x0000);
  EXPECT_EQ(to_f16(-0.0F).bits, 0x8000);
  EXPECT_EQ(to_bf16(1.0F).bits, 0x3f80);
  EXPECT_EQ(to_bf16(3.4e38F).bits, 0x7f80);
}

INSTANTIATE_TEST_SUITE_P(Types, Float16Test, testing::Values(DType::kF16, DType::kBf16),
                         [](const auto& one) { return std::string(base::name_of(one.param)); });

}  // namespace
}  // namespace ronde::collectives
