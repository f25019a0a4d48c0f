// SPDX-License-Identifier: Apache-2.0
// Numbers as text that machines read again: the same in every locale, since a program may have
// chosen one whose numbers have commas. Headers alone. Pure.
#pragma once

#include <array>
#include <charconv>
#include <string>
#include <system_error>

namespace ronde::base {

// As "%.15g" of the C locale writes it: what was written with so many digits is what it was.
[[nodiscard]] inline std::string number_text(double number, int digits = 15) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number,
                                          std::chars_format::general, digits);
  return {text.data(), end};
}

// The fewest digits, but at least 6, from which the same number is read.
[[nodiscard]] inline std::string exact_text(double number) {
  constexpr int kEnough = 17;
  for (int digits = 6;; ++digits) {
    std::string text = number_text(number, digits);
    double read = 0.0;
    std::from_chars(text.data(), text.data() + text.size(), read);
    if (digits >= kEnough || read == number) return text;
  }
}

}  // namespace ronde::base
