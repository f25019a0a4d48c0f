// SPDX-License-Identifier: Apache-2.0
// Pictures of what was measured, as SVG; `machine` is written below. Each draws the first
// operation, model, dtype and op among the summaries, in place if that was measured. Pure.
#pragma once

#include <span>
#include <string>

#include "examples/perf/measure/statistics.h"

namespace ronde::perf {

// Latency and bandwidth over the sizes.
[[nodiscard]] std::string plot(std::span<const Summary> summaries, const std::string& machine);
// A bar of the time for each contender of one model.
[[nodiscard]] std::string bars(std::span<const Summary> summaries, const std::string& machine);

}  // namespace ronde::perf
