// SPDX-License-Identifier: Apache-2.0
// How Boost.Program_options reads the words of a table of flags. Boost converts "-1" to an unsigned
// number and "nan" to a floating one silently, so values stay text until the table reads them.
#pragma once

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdint>
#include <iterator>
#include <locale>
#include <sstream>
#include <string>
#include <vector>

#include "base/flags/flags.h"

namespace ronde::base::flags {

// What the user wants, if not that the program runs.
enum class Asked : std::uint8_t { kNothing, kHelp, kVersion };

namespace detail {

inline bool has_letters(const FlagTable& table) {
  return std::ranges::any_of(table.flags(), [](const Flag& flag) { return flag.letter != 0; });
}

inline boost::program_options::options_description described(const FlagTable& table) {
  namespace po = boost::program_options;
  po::options_description options("Flags");
  options.add_options()(has_letters(table) ? "help,h" : "help", "print this text and stop")(
      "version", "print the version and stop");
  for (const auto& [name, value, help, letter, given] : table.flags()) {
    const std::string names = letter == 0 ? name : name + ',' + letter;
    auto* const taken = po::value<std::string>()->default_value(value.text)->value_name("VALUE");
    if (value.is_switch) taken->implicit_value("on");
    options.add_options()(names.c_str(), taken, help.c_str());
  }
  return options;
}

// The guides' flags have underscores: --steps_to_validate.
inline std::vector<std::string> with_dashes(const FlagTable& table, int argc,
                                            const char* const* argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::string& word : words) {
    if (!word.starts_with("--")) continue;
    const std::string name = word.substr(2, word.find('=') - 2);
    if (std::ranges::find(table.flags(), name, &Flag::name) != table.flags().end()) continue;
    std::replace(word.begin(), word.begin() + 2 + std::ssize(name), '_', '-');
  }
  return words;
}

}  // namespace detail

[[nodiscard]] inline std::string help_text(const FlagTable& table) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << table.summary() << "\n\nUsage: " << table.program() << " [flags]\n\n"
       << detail::described(table);
  return text.str();
}

// Reads all flags, if the user does not ask for anything else. Throws UsageError.
[[nodiscard]] inline Asked parse(FlagTable& table, int argc, const char* const* argv) {
  namespace po = boost::program_options;
  using Style = po::command_line_style::style_t;
  // Only whole names are allowed: an abbreviation would change its meaning when a flag is added.
  constexpr int kLong = Style::allow_long | Style::long_allow_adjacent | Style::long_allow_next;
  constexpr int kShort = Style::allow_short | Style::allow_dash_for_short |
                         Style::short_allow_next | Style::short_allow_adjacent;
  const bool letters = detail::has_letters(table);
  const std::string see_help = ": see " + table.program() + " --help";
  try {
    const po::options_description options = detail::described(table);
    po::variables_map given;
    po::store(po::command_line_parser(detail::with_dashes(table, argc, argv))
                  .options(options)
                  .positional(po::positional_options_description())
                  .style(letters ? kLong | kShort : kLong)
                  .run(),
              given);
    if (given.count("help") != 0) return Asked::kHelp;
    if (given.count("version") != 0) return Asked::kVersion;
    for (Flag& flag : table.flags()) {
      flag.given = !given[flag.name].defaulted();
      flag.value.text = given[flag.name].as<std::string>();
    }
  } catch (const po::too_many_positional_options_error&) {
    throw UsageError(std::string("every argument must be a flag that begins with ") +
                     (letters ? "- or --" : "--") + see_help);
  } catch (const po::error& error) {
    throw UsageError(error.what() + see_help);
  }
  table.read();
  return Asked::kNothing;
}

}  // namespace ronde::base::flags
