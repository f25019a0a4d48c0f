// SPDX-License-Identifier: Apache-2.0
// What ronderun and its agents look up in the files of their host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ronde::launcher {

// The last line in a file; empty: none, but for ronderun's own.
[[nodiscard]] std::string last_line_of(const std::string& path);

// The processors that this process may use, by the nodes of memory that they belong to, and by the
// cores, of which each may be several.
[[nodiscard]] std::vector<std::vector<int>> processors_of_nodes();
[[nodiscard]] std::vector<std::vector<int>> processors_of_cores();

enum class Found : std::uint8_t { kYes, kNo, kNotExecutable };

struct Program {
  Found found = Found::kNo;
  std::string path;
};

// Looks a program up as a shell does: a name with a slash is a path, others are searched in the
// folders of `path` (the text of PATH).
[[nodiscard]] Program find_program(const std::string& name, const std::string& path);

}  // namespace ronde::launcher
