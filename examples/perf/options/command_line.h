// SPDX-License-Identifier: Apache-2.0
// The command line of ronde-perf: nccl-tests' flags, and those that only a comparison needs.
#pragma once

#include <string>

#include "examples/perf/options/options.h"

namespace ronde::perf {

// Parses and checks all flags. Throws UsageError.
[[nodiscard]] Options parse_options(int argc, const char* const* argv);
[[nodiscard]] std::string help_text();

}  // namespace ronde::perf
