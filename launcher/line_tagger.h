// SPDX-License-Identifier: Apache-2.0
// Puts the rank before each line that it prints. Pure.
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

}  // namespace ronde::launcher
