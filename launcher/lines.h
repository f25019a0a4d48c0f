// SPDX-License-Identifier: Apache-2.0
// What ronderun does with the lines that the ranks print: puts the rank before each, and remembers
// the last one. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ronde::launcher {

// Keeps the beginning of a line until the rest has come, so that lines of ranks do not mix.
//
// Thread safety: none.
class LineTagger {
 public:
  explicit LineTagger(std::int64_t rank) : tag_("[" + std::to_string(rank) + "] ") {}

  // Returns the lines that these bytes complete, each with its tag. A line of more than 64 KiB is
  // cut.
  [[nodiscard]] std::string take(std::string_view bytes);
  // Returns what is left when the rank has ended, as a line.
  [[nodiscard]] std::string finish();

 private:
  std::string tag_;
  std::string begun_;
};

// Remembers the last line that says something: neither a blank one nor one of dashes.
//
// Thread safety: none.
class LastLine {
 public:
  void take(std::string_view bytes);
  // The beginning of a long line; empty: there was no line.
  [[nodiscard]] const std::string& text() const;

 private:
  std::string begun_;
  std::string whole_;
};

// Leaves out a time that a line begins with, as "2026-01-31 12:00:00.5 ", "12:00:00 " or the same
// in square brackets.
[[nodiscard]] std::string_view without_time(std::string_view line);

}  // namespace ronde::launcher
