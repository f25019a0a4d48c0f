// SPDX-License-Identifier: Apache-2.0
// Counts that cannot overflow or lose a bit in silence.
#include "base/numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace ronde::base {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

TEST(Numbers, NarrowKeepsWhatFits) {
  EXPECT_EQ(narrow<std::int32_t>(std::int64_t{2147483647}), 2147483647);
  EXPECT_EQ(narrow<std::int32_t>(std::int64_t{-2147483648}), std::int32_t{-2147483647} - 1);
  EXPECT_EQ(narrow<std::uint8_t>(255), 255);
  EXPECT_EQ(narrow<std::size_t>(std::int64_t{7}), 7U);
}

TEST(NumbersDeathTest, NarrowAbortsWithTheNumberAndThePlace) {
  EXPECT_DEATH((void)narrow<std::int32_t>(std::int64_t{2147483648}),
               "numbers_test.cc:[0-9]+: number 2147483648 does not fit");
  EXPECT_DEATH((void)narrow<std::size_t>(-1), "number -1 does not fit");
  EXPECT_DEATH((void)narrow<std::int64_t>(std::numeric_limits<std::uint64_t>::max()),
               "18446744073709551615");
}

TEST(Numbers, TryNarrowIsAnErrorWithTheRange) {
  const auto good = try_narrow<std::uint8_t>(255, "rank");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 255);
  const auto bad = try_narrow<std::int8_t>(std::int64_t{128}, "rank");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(bad.status().message(), "rank 128 is out of range [-128, 127]");
  EXPECT_THAT(bad.status().place(), testing::HasSubstr("numbers_test.cc"));
  EXPECT_FALSE((try_narrow<std::uint32_t>(-1, "count").ok()));
}

TEST(Numbers, CountsAddSubtractAndCompare) {
  const Bytes a(3);
  Bytes b(4);
  EXPECT_EQ((a + b).value(), 7);
  EXPECT_EQ((b - a).value(), 1);
  EXPECT_EQ((a - a).value(), 0);
  EXPECT_LT(a, b);
  EXPECT_EQ(a, Bytes(3));
  b += a;
  EXPECT_EQ(b, Bytes(7));
  EXPECT_EQ(Bytes().value(), 0);
  EXPECT_EQ(Elements::of_size(12).value(), 12);
  EXPECT_EQ(Elements(12).size(), 12U);
  EXPECT_EQ((Bytes(kMost - 1) + Bytes(1)).value(), kMost);
}

// Elements are not bytes: mixing them up must not compile.
template <typename A, typename B>
concept Addable = requires(A a, B b) { a + b; };
static_assert(Addable<Bytes, Bytes>);
static_assert(!Addable<Bytes, Elements>);
static_assert(!Addable<Bytes, std::int64_t>);
static_assert(!std::is_convertible_v<std::int64_t, Bytes>);
static_assert(!std::is_convertible_v<Elements, Bytes>);

TEST(NumbersDeathTest, CountsNeverOverflowOrGoBelowZero) {
  EXPECT_DEATH((void)Bytes(-1), "never negative");
  EXPECT_DEATH((void)(Bytes(1) - Bytes(2)), "never negative");
  EXPECT_DEATH((void)(Bytes(kMost) + Bytes(1)), "count overflow");
  EXPECT_DEATH((void)Bytes::of_size(std::numeric_limits<std::size_t>::max()), "does not fit");
}

TEST(Numbers, CheckedProduct) {
  EXPECT_EQ(checked_product(3, 4), 12);
  EXPECT_EQ(checked_product(kMost, 1), kMost);
  EXPECT_EQ(checked_product(kMost, 0), 0);
  EXPECT_EQ(checked_product(1LL << 31, 1LL << 31), 1LL << 62);
  EXPECT_EQ(checked_product(1LL << 32, 1LL << 31), std::nullopt);
  EXPECT_EQ(checked_product(kMost, 2), std::nullopt);
  EXPECT_EQ(checked_product(kLeast, -1), std::nullopt);
}

TEST(Numbers, CeilDiv) {
  EXPECT_EQ(ceil_div(0, 64), 0);
  EXPECT_EQ(ceil_div(1, 64), 1);
  EXPECT_EQ(ceil_div(64, 64), 1);
  EXPECT_EQ(ceil_div(65, 64), 2);
  EXPECT_EQ(ceil_div(kMost, 2), kMost / 2 + 1);
}

}  // namespace
}  // namespace ronde::base
