// SPDX-License-Identifier: Apache-2.0
// Comparing with an earlier run: ratios to contenders of the same run, since times alone change
// with the machine. Pure.
#pragma once

#include <istream>
#include <span>
#include <string>
#include <vector>

#include "examples/perf/statistics.h"

namespace ronde::perf {

// The summary of a file written with --json. Throws std::runtime_error that says what is wrong.
[[nodiscard]] std::vector<Summary> read_summaries(std::istream& in, const std::string& name);

struct Comparison {
  std::size_t compared = 0;
  std::vector<std::string> worse;  // one line each
};

// A ratio is worse when even the best repetition of now is below the worst of then (so the noise of
// both does not explain it) and the median has fallen by more than `tolerance`, a share of it (so
// that a difference that is steady but small is no alarm).
[[nodiscard]] Comparison compare(std::span<const Summary> before, std::span<const Summary> now,
                                 double tolerance);

}  // namespace ronde::perf
