// SPDX-License-Identifier: Apache-2.0
// Numbers and their text, text in parts, and text of others.
#include "base/text.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <locale>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"

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

// As std::locale("de_DE.UTF-8") is, which need not be installed.
struct Commas : std::numpunct<char> {
  [[nodiscard]] char do_decimal_point() const override { return ','; }
  [[nodiscard]] char do_thousands_sep() const override { return '.'; }
  [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};

TEST(NumberText, IsTheSameInEveryLocale) {
  const std::locale before =
      std::locale::global(std::locale(std::locale::classic(), new Commas));  // the locale owns it
  EXPECT_EQ(number_text(0.05), "0.05");
  EXPECT_EQ(number_text(123456.0), "123456");
  EXPECT_EQ(number_text(1e-8), "1e-08");
  EXPECT_EQ(number_text(1.0 / 3.0, 3), "0.333");
  EXPECT_EQ(parse_number<double>("0.05"), 0.05);
  EXPECT_EQ(parse_number<int>("1000"), 1000);
  EXPECT_EQ(parse_number<int>("1.000"), std::nullopt);
  std::locale::global(before);
}

TEST(ParseNumber, DoesNotReadBeyondTheText) {
  EXPECT_EQ(parse_number<int>(std::string_view("123").substr(0, 2)), 12);
}

using Words = std::vector<std::string>;

TEST(WordsOf, LeavesOutTheEmptyOnes) {
  EXPECT_EQ(words_of(""), Words());
  EXPECT_EQ(words_of(" \t\n"), Words());
  EXPECT_EQ(words_of("one"), Words{"one"});
  EXPECT_EQ(words_of("  one\ttwo \n three "), (Words{"one", "two", "three"}));
}

TEST(WordsOf, TakesOtherSeparators) {
  EXPECT_EQ(words_of("eth0,,10.0.0.0/8,", ","), (Words{"eth0", "10.0.0.0/8"}));
  EXPECT_EQ(words_of("a b\nc", "\n"), (Words{"a b", "c"}));
}

constexpr std::string_view kEvil = "evil\n\x1b[2Jronde[rank 0] error: forged";
constexpr std::string_view kHarmless = "evil\\n\\x1b[2Jronde[rank 0] error: forged";

TEST(Printable, WritesControlCharactersAsInC) {
  EXPECT_EQ(printable(kEvil), kHarmless);
  EXPECT_EQ(printable("\t\r\x7f"), "\\t\\r\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b") << "a control character of UTF-8";
}

TEST(Printable, LeavesOtherTextAlone) {
  for (const std::string_view text :
       {"", "'fc1/weight' [3, 4]", "Gewicht für Größe", "\xff\xc2", "€"}) {
    EXPECT_EQ(printable(text), text);
  }
  EXPECT_EQ(printable(printable(kEvil)), kHarmless) << "a text may go through it twice";
}

TEST(Printable, IsWhatErrorsAndTheLogSay) {
  const std::string evil(kEvil);
  EXPECT_EQ(Status::error(Code::kInternal, evil).message(), kHarmless);
  EXPECT_EQ(Status::remote(Code::kInternal, evil, evil, 1).message(), kHarmless);
  EXPECT_EQ(Status::remote(Code::kInternal, evil, evil, 1).place(), kHarmless);
  std::string line;
  Log(LogLevel::kInfo, 3, [&](std::string_view said) { line = said; }).info(evil);
  EXPECT_EQ(line, "ronde[rank 3] info: " + std::string(kHarmless) + "\n");
}

TEST(Words, RankLists) {
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(rank_list({0}), "0");
  EXPECT_EQ(rank_list({0, 1, 2}), "0-2");
  EXPECT_EQ(rank_list({0, 2, 3}), "0, 2-3");
  EXPECT_EQ(rank_list({1, 3, 5, 6, 7, 9}), "1, 3, 5-7, 9");
  EXPECT_EQ(ranks_phrase({}), "no rank");
  EXPECT_EQ(ranks_phrase({4}), "rank 4");
  EXPECT_EQ(ranks_phrase({4, 5}), "ranks 4-5");
}

TEST(Words, SecondsAreShortAndNeverInPowersOfTen) {
  EXPECT_EQ(seconds_text(std::chrono::milliseconds(30'049)), "30 s");
  EXPECT_EQ(seconds_text(std::chrono::milliseconds(1'250)), "1.25 s");
  EXPECT_EQ(seconds_text(std::chrono::milliseconds(99'999)), "100 s");
  EXPECT_EQ(seconds_text(std::chrono::milliseconds(1'769'600)), "1770 s");
  EXPECT_EQ(seconds_text(std::chrono::seconds(86'400)), "86400 s");
}

TEST(Words, AreJoinedAndBytesHaveTwoDigits) {
  EXPECT_EQ(joined(std::vector<std::string>()), "");
  EXPECT_EQ(joined(std::vector<std::string>{"", "a", "b"}), ", a, b");
  EXPECT_EQ(joined(std::vector<std::string>{"a", "b"}, " "), "a b");
  EXPECT_EQ(some_of({"a", "b"}, 2), "a, b");
  EXPECT_EQ(some_of({"a", "b", "c", "d"}, 2), "a, b and 2 more");
  EXPECT_EQ(hex_of(std::vector<std::byte>()), "");
  EXPECT_EQ(hex_of(std::vector<std::byte>{std::byte{0}, std::byte{0xAF}}), "00af");
}

}  // namespace
}  // namespace ronde::base
