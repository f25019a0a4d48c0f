// SPDX-License-Identifier: Apache-2.0
// Compares with an earlier run: ratios to contenders of the same run, since times alone change with
// the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/perf/measure/statistics.h"
#include "examples/perf/options/options.h"
#include "examples/perf/report/report.h"

namespace ronde::perf {

// The conditions that two comparable runs share: names and values as text.
using Conditions = std::vector<std::pair<std::string, std::string>>;

[[nodiscard]] Conditions conditions_of(const Options& options, const Machine& machine);

// A file written with --json.
struct Baseline {
  Conditions conditions;
  std::uint64_t repetitions = 0;
  std::vector<Summary> summaries;
};

// Reads a file. Throws UsageError that names the file and what is wrong in it.
[[nodiscard]] Baseline read_baseline(std::istream& in, const std::string& name);
[[nodiscard]] Baseline read_baseline(const std::string& name);
// Refuses a run that was measured under other conditions, or too rarely to tell noise from change.
void require_alike(const Baseline& before, const Conditions& now, const std::string& name);

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
