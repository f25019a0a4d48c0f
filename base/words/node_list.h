// SPDX-License-Identifier: Apache-2.0
// Lists of hosts as Slurm writes them: "node[07-09,12],gpu-[1-2]x". The ranks' identity and
// ronderun read them here. Headers alone. Pure.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace ronde::base {

namespace node_list {

// More hosts than this are a mistake, or somebody's attempt to use all memory up.
inline constexpr std::size_t kMostHosts = std::size_t{1} << 20U;

using Names = std::vector<std::string>;

inline std::optional<std::uint32_t> number(std::string_view digits) {
  std::uint32_t value = 0;
  const char* const begin = digits.data();
  const char* const end = begin + digits.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  constexpr std::size_t kMostDigits = 9;
  if (digits.size() > kMostDigits || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// "07-09,12": the numbers, each with as many digits at least as the first of its range.
inline bool read_numbers(std::string_view text, Names& numbers) {
  while (true) {
    const std::string_view range = text.substr(0, text.find(','));
    const std::string_view low = range.substr(0, range.find('-'));
    const auto first = number(low);
    const auto last = low.size() == range.size() ? first : number(range.substr(low.size() + 1));
    if (!first || !last || *last < *first || *last - *first >= kMostHosts - numbers.size()) {
      return false;
    }
    for (std::uint64_t i = *first; i <= *last; ++i) {
      std::string digits = std::to_string(i);
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      numbers.push_back(std::move(digits));
    }
    if (range.size() == text.size()) return true;
    text.remove_prefix(range.size() + 1);
  }
}

// Puts every ending behind every beginning.
inline bool multiply(Names& names, const Names& endings) {
  if (names.size() * endings.size() > kMostHosts) return false;
  Names products;
  for (const std::string& name : names) {
    for (const std::string& ending : endings) products.push_back(name + ending);
  }
  names = std::move(products);
  return true;
}

// Takes one word of the list, to the comma behind its brackets, from the text.
inline bool read_word(std::string_view& text, Names& names) {
  names = {""};
  while (!text.empty() && text[0] != ',') {
    const bool bracket = text[0] == '[';
    const std::size_t end = bracket ? text.find(']') : text.find_first_of("[,");
    if (bracket && end == std::string_view::npos) return false;
    const std::string_view part = text.substr(bracket ? 1 : 0, bracket ? end - 1 : end);
    Names endings;
    if (bracket && !read_numbers(part, endings)) return false;
    if (!bracket && part.find_first_of("] \t\n") != std::string_view::npos) return false;
    if (!multiply(names, bracket ? endings : Names{std::string(part)})) return false;
    text.remove_prefix(part.size() + (bracket ? 2 : 0));
  }
  return !names.front().empty();
}

}  // namespace node_list

// The hosts in their order; nothing where the text is no such list, or one of more than 2^20.
inline std::optional<std::vector<std::string>> read_node_list(std::string_view text) {
  std::vector<std::string> hosts;
  while (true) {
    std::vector<std::string> names;
    if (!node_list::read_word(text, names)) return std::nullopt;
    if (hosts.size() + names.size() > node_list::kMostHosts) return std::nullopt;
    hosts.insert(hosts.end(), names.begin(), names.end());
    if (text.empty()) return hosts;
    text.remove_prefix(1);  // the comma
  }
}

}  // namespace ronde::base
