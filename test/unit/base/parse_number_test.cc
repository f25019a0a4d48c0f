// SPDX-License-Identifier: Apache-2.0
// A number out of text: all of it, or nothing.
#include "base/parse_number.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace ronde::base {
namespace {

TEST(ParseNumber, TakesAllOfTheText) {
  EXPECT_EQ(parse_number<int>("42"), 42);
  EXPECT_EQ(parse_number<int>("-7"), -7);
  EXPECT_EQ(parse_number<std::uint16_t>("65535"), 65535);
  EXPECT_EQ(parse_number<double>("2.5e-1"), 0.25);
}

TEST(ParseNumber, IsNothingWhereAnythingElseIsThere) {
  for (const std::string_view text : {"", " 1", "1 ", "1x", "x", "+1", "0x10", "-"}) {
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << text;
  }
}

TEST(ParseNumber, IsNothingWhereTheTypeIsTooSmall) {
  EXPECT_EQ(parse_number<std::uint16_t>("65536"), std::nullopt);
  EXPECT_EQ(parse_number<std::uint16_t>("-1"), std::nullopt);
  EXPECT_EQ(parse_number<double>("1e999"), std::nullopt);
}

TEST(ParseNumber, DoesNotReadBeyondTheText) {
  EXPECT_EQ(parse_number<int>(std::string_view("123").substr(0, 2)), 12);
}

}  // namespace
}  // namespace ronde::base
