// SPDX-License-Identifier: Apache-2.0
// Each message says which option and text, and what is valid.
#include "launcher/option_values.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "base/text.h"

namespace ronde::launcher {

namespace {

using base::Code;
using base::Result;
using base::Status;

constexpr std::int64_t kLongestGrace = 86400;      // a day; a batch system waits for minutes
constexpr std::int64_t kLongestWindow = 31536000;  // a year

Status not_valid(const std::string& message) {
  return Status::error(Code::kInvalidArgument, message);
}

}  // namespace

Result<std::int64_t> parse_ranks(const std::string& name, const std::string& text) {
  const auto ranks = base::parse_number<std::int64_t>(text);
  if (!ranks.has_value() || *ranks < 1) {
    return not_valid(name + " " + text +
                     " is not a number of ranks: use a whole number, 1 or more");
  }
  return *ranks;
}

Result<std::int64_t> parse_restarts(const std::string& name, const std::string& text) {
  const auto restarts = base::parse_number<std::int64_t>(text);
  if (!restarts.has_value() || *restarts < 0) {
    return not_valid(name + " " + text +
                     " is not a number of restarts: use a whole number, 0 or more");
  }
  return *restarts;
}

Result<base::Nanoseconds> parse_grace(const std::string& name, const std::string& text) {
  const auto seconds = base::parse_number<double>(text);
  if (!seconds.has_value() || !(*seconds >= 0 && *seconds <= kLongestGrace)) {
    return not_valid(name + " " + text + " is not a time: use seconds from 0 (no grace) to " +
                     std::to_string(kLongestGrace));
  }
  return std::chrono::duration_cast<base::Nanoseconds>(std::chrono::duration<double>(*seconds));
}

// Without a window every restart would be forgiven at once, and a job that fails be started for
// ever.
Result<base::Nanoseconds> parse_window(const std::string& name, const std::string& text) {
  const auto seconds = base::parse_number<double>(text);
  if (!seconds.has_value() || !(*seconds >= 1 && *seconds <= kLongestWindow)) {
    return not_valid(name + " " + text + " is not a time: use seconds from 1 to " +
                     std::to_string(kLongestWindow));
  }
  return std::chrono::duration_cast<base::Nanoseconds>(std::chrono::duration<double>(*seconds));
}

Result<Export> parse_export(const std::string& text) {
  const std::size_t equals = text.find('=');
  Export result{text.substr(0, equals), std::nullopt};
  if (equals != std::string::npos) result.value = text.substr(equals + 1);
  const auto is_letter = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  if (result.name.empty() || std::isdigit(static_cast<unsigned char>(result.name[0])) != 0 ||
      !std::all_of(result.name.begin(), result.name.end(), is_letter)) {
    return not_valid("-x " + text + " does not name a variable: write -x NAME or -x NAME=VALUE");
  }
  return result;
}

Result<std::string> parse_binding(const std::string& text) {
  static constexpr std::string_view kTargets[] = {"auto",    "none",    "hwthread", "core",
                                                  "l1cache", "l2cache", "l3cache",  "socket",
                                                  "numa",    "board",   "cpu-list"};
  const std::string target = text.substr(0, text.find(':'));  // a qualifier of mpirun may follow
  if (std::find(std::begin(kTargets), std::end(kTargets), target) == std::end(kTargets)) {
    std::string words;
    for (const std::string_view word : kTargets) words += " " + std::string(word);
    return not_valid("--bind-to " + text + " is not valid: use one of:" + words);
  }
  return text;
}

// Blanks part words, outside of quotes; within "" a backslash is for what has a meaning there.
Result<std::vector<std::string>> parse_words(const std::string& name, const std::string& text) {
  std::vector<std::string> words;
  char quote = 0;
  bool begun = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    const bool blank = quote == 0 && std::isspace(static_cast<unsigned char>(letter)) != 0;
    if (!blank && !begun) words.emplace_back();
    begun = !blank;
    if (blank) continue;
    const std::string_view next = std::string_view(text).substr(i + 1, 1);
    const bool escapes = quote == 0 || (quote == '"' && next.find_first_of("\"\\$`") == 0);
    if (letter == '\\' && escapes && !next.empty()) {
      words.back() += text[++i];
    } else if (letter == quote) {
      quote = 0;
    } else if (quote == 0 && (letter == '"' || letter == '\'')) {
      quote = letter;
    } else {
      words.back() += letter;
    }
  }
  if (quote == 0) return words;
  return not_valid(name + " " + text + " cannot be split into words: a quote " + quote +
                   " is not closed");
}

}  // namespace ronde::launcher
