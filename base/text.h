// SPDX-License-Identifier: Apache-2.0
// Text that machines read, and text of others that people read. Numbers are the same in every
// locale, since a program may have chosen one whose numbers have commas; streams follow it, so they
// are no way to read or write numbers here (test/lint/locale_numbers.py).
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/words/number_text.h"

namespace ronde::base {

inline constexpr std::string_view kHexDigits = "0123456789abcdef";

// The number that `text` holds; nothing where it holds anything else as well, or where the number
// does not fit its type.
template <typename Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

// The parts of `text` between any of `separators`, without the empty ones.
[[nodiscard]] inline std::vector<std::string> words_of(std::string_view text,
                                                       std::string_view separators = " \t\n") {
  std::vector<std::string> words;
  while (true) {
    const std::size_t begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return words;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(separators));
    words.emplace_back(word);
    text.remove_prefix(word.size());
  }
}

// The words with `between` each two of them.
template <typename Words>
[[nodiscard]] std::string joined(const Words& words, std::string_view between = ", ") {
  std::string text;
  for (bool first = true; const std::string& word : words) {
    if (!std::exchange(first, false)) text += between;
    text += word;
  }
  return text;
}

// "first, second and 3 more": at most so many of them.
[[nodiscard]] inline std::string some_of(std::vector<std::string> words, std::size_t most) {
  if (words.size() <= most) return joined(words);
  const std::string more = " and " + std::to_string(words.size() - most) + " more";
  words.resize(most);
  return joined(words) + more;
}

// "1 tensor", "3 tensors".
[[nodiscard]] inline std::string tensors_text(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " tensor" : " tensors");
}

// "0", "0-2", "0, 2-3": ranks in ascending order.
[[nodiscard]] inline std::string rank_list(const std::vector<std::int32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

// "rank 1" or "ranks 0-2".
[[nodiscard]] inline std::string ranks_phrase(const std::vector<std::int32_t>& ranks) {
  if (ranks.empty()) return "no rank";
  return (ranks.size() == 1 ? "rank " : "ranks ") + rank_list(ranks);
}

// "1.25 s": three significant digits; "1770 s": from 100 s on, whole seconds.
[[nodiscard]] inline std::string seconds_text(std::chrono::nanoseconds span) {
  if (span < std::chrono::seconds(100)) {
    return number_text(std::chrono::duration<double>(span).count(), 3) + " s";
  }
  return std::to_string(std::chrono::round<std::chrono::seconds>(span).count()) + " s";
}

// Two digits for each byte.
[[nodiscard]] inline std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += kHexDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kHexDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

namespace detail {

inline bool is_control(unsigned char byte) { return byte < 0x20 || byte == 0x7f; }

// How many bytes of a control character begin `text`.
inline std::size_t control_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (is_control(first)) return 1;
  if (first != 0xc2 || text.size() < 2) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  return second >= 0x80 && second <= 0x9f ? 2 : 0;
}

inline std::string escaped(char character) {
  switch (character) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return "\\x" + hex_of(std::as_bytes(std::span(&character, 1)));
  }
}

}  // namespace detail

// `text` with its control characters (those of ASCII, and U+0080 to U+009F) written as in C: "\n",
// "\x1b". Names, hosts and paths come from programs and from other hosts, and end in messages: a
// line end in one of them must not begin a line that looks like Ronde's own, nor an escape sequence
// reach a terminal. Status and Log pass every text through here. Text without control characters
// stays as it is, and so does text that has been through here.
[[nodiscard]] inline std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t control = detail::control_bytes(text);
    for (const char character : text.substr(0, control)) result += detail::escaped(character);
    if (control == 0) result += text.front();
    text.remove_prefix(std::max<std::size_t>(control, 1));
  }
  return result;
}

}  // namespace ronde::base
