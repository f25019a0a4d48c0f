// SPDX-License-Identifier: Apache-2.0
// The command line of ronde-perf: nccl-tests' flags, and those that only a comparison needs. Values
// stay text until they are checked, so that each error names the flag, the value and what is valid.
#pragma once

#include <cstddef>
#include <string>

#include "examples/perf/options/options.h"

namespace ronde::perf {

// Parses and checks all flags. Throws UsageError.
[[nodiscard]] Options parse_options(int argc, const char* const* argv);
[[nodiscard]] std::string help_text();

// Reads a whole number with an optional K, M or G (powers of 1,024).
[[nodiscard]] std::size_t parse_bytes(const std::string& flag, const std::string& text);

}  // namespace ronde::perf
