// SPDX-License-Identifier: Apache-2.0
// Numbers out of text that came from outside: a setting, an address, a variable of the launcher.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace ronde::base {

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

}  // namespace ronde::base
