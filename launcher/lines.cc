// SPDX-License-Identifier: Apache-2.0
#include "launcher/lines.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace ronde::launcher {

namespace {

constexpr std::size_t kLongestLine = std::size_t{64} << 10U;
constexpr std::size_t kMostRemembered = 1024;  // bytes of the last line

bool says_something(std::string_view line) {
  return std::any_of(line.begin(), line.end(),
                     [](unsigned char letter) { return std::isalnum(letter) != 0; });
}

// Removes the form from the beginning of the text, where a 9 stands for any digit, and returns
// whether it was there.
bool remove_form(std::string_view& text, std::string_view form) {
  if (text.size() < form.size()) return false;
  for (std::size_t i = 0; i < form.size(); ++i) {
    const bool fits = form[i] == '9' ? std::isdigit(static_cast<unsigned char>(text[i])) != 0
                                     : text[i] == form[i];
    if (!fits) return false;
  }
  text.remove_prefix(form.size());
  return true;
}

}  // namespace

std::string LineTagger::take(std::string_view bytes) {
  std::string lines;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    begun_ += bytes.substr(0, end);
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    if (end == std::string_view::npos && begun_.size() < kLongestLine) break;
    lines += tag_ + begun_ + "\n";
    begun_.clear();
  }
  return lines;
}

std::string LineTagger::finish() { return begun_.empty() ? "" : take("\n"); }

void LastLine::take(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    begun_ += bytes.substr(0, std::min(end, kMostRemembered - begun_.size()));
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    if (begun_.ends_with('\r')) begun_.pop_back();  // as ssh ends its lines
    if (says_something(begun_)) whole_ = begun_;
    begun_.clear();
  }
}

const std::string& LastLine::text() const { return says_something(begun_) ? begun_ : whole_; }

std::string_view without_time(std::string_view line) {
  std::string_view rest = line;
  const bool bracket = remove_form(rest, "[");
  for (const std::string_view day : {"9999-99-99 ", "9999-99-99T", "9999/99/99 "}) {
    if (remove_form(rest, day)) break;
  }
  if (!remove_form(rest, "99:99:99")) return line;
  if (rest.starts_with('.') || rest.starts_with(',')) {
    rest.remove_prefix(std::min(rest.find_first_not_of("0123456789", 1), rest.size()));
  }
  remove_form(rest, "Z");
  return bracket && !remove_form(rest, "]") ? line : rest;
}

}  // namespace ronde::launcher
