// SPDX-License-Identifier: Apache-2.0
// What ronderun has to know about the machine it runs on. These functions only read files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/command_line.h"

namespace ronde::launcher {

// The facts of this process on this machine; mpirun stays as the word "mpirun".
[[nodiscard]] Facts facts_of_this_machine();

// Where a rank has started this process: takes the words out of the environment by which it would
// be that rank, and its mark, since what ronderun starts is a job of its own. For a program of one
// thread.
void forget_the_rank();

// A new secret of a job, as text: 256 random bits.
[[nodiscard]] std::string new_secret();

// The last line that the ranks of this host have printed to the files of --output-dir since then;
// empty: none, but for ronderun's own.
[[nodiscard]] std::string last_line_in(const std::string& folder,
                                       std::filesystem::file_time_type since);

enum class Found : std::uint8_t { kYes, kNo, kNotExecutable };

struct Program {
  Found found = Found::kNo;
  std::string path;
};

// Looks a program up as a shell does: a name with a slash is a path, others are searched in the
// folders of `path` (the text of PATH).
[[nodiscard]] Program find_program(const std::string& name, const std::string& path);

}  // namespace ronde::launcher
