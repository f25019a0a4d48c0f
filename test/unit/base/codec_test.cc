// SPDX-License-Identifier: Apache-2.0
// Messages: what is written is read, and nothing else is.
#include "base/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ronde::base {
namespace {

enum class Colour : std::int8_t { kRed = -1, kGreen = 0, kBlue = 1 };

struct Note {
  std::int32_t number = 0;
  bool open = false;
  std::string text;
  std::vector<std::int64_t> list;
  std::vector<std::byte> bytes;
  std::optional<std::uint16_t> port;
  Colour colour = Colour::kGreen;
  friend bool operator==(const Note&, const Note&) = default;
};
void fields(auto& f, Is<Note> auto& note) {
  f(note.number, note.open, note.text, note.list, note.bytes, note.port);
  f.among(note.colour, Colour::kRed, Colour::kBlue, "an unknown colour");
  f.check([&] { return note.number < 0 ? "a negative number" : nullptr; });
}

Note some_note() {
  return {7, true, "a text", {-1, INT64_MAX}, {std::byte{1}, std::byte{2}}, 80, Colour::kRed};
}

TEST(Codec, WhatIsWrittenIsRead) {
  const auto bytes = encoded(some_note());
  const auto read = decoded<Note>(bytes);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, some_note());
  EXPECT_EQ(*decoded<Note>(encoded(Note{})), Note{});
}

TEST(Codec, NothingShorterOrLongerIsRead) {
  auto bytes = encoded(some_note());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decoded<Note>(std::span(bytes).first(size)).ok()) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_THAT(decoded<Note>(bytes).status().message(),
              ::testing::HasSubstr("more bytes than the message needs"));
}

TEST(Codec, WrongFieldsAreNamedWithTheirPlace) {
  const auto trouble = [](std::size_t at, std::uint8_t byte) {
    auto bytes = encoded(some_note());
    bytes.at(at) = std::byte{byte};
    return decoded<Note>(bytes).status().message();
  };
  const std::size_t last = encoded(some_note()).size() - 1;
  EXPECT_THAT(trouble(4, 2), ::testing::HasSubstr("a truth value that is neither 0 nor 1"));
  EXPECT_THAT(trouble(last, 2), ::testing::HasSubstr("an unknown colour"));
  EXPECT_THAT(trouble(last, 0xfe), ::testing::HasSubstr("an unknown colour"));
  EXPECT_THAT(trouble(3, 0x80), ::testing::HasSubstr("a negative number"));
  // The length of the list: no memory is taken for what is not there.
  EXPECT_THAT(trouble(4 + 1 + 4 + 6 + 3, 0xff),
              ::testing::HasSubstr("a list that is longer than the message"));
}

}  // namespace
}  // namespace ronde::base
