// SPDX-License-Identifier: Apache-2.0
// A picture of the contenders of one model: a bar of the time for each, as SVG. Pure.
#pragma once

#include <span>
#include <string>

#include "examples/perf/measure/statistics.h"

namespace ronde::perf {

// Draws the first model among the summaries, in place if that was measured. `machine` is written
// below the picture.
[[nodiscard]] std::string bars(std::span<const Summary> summaries, const std::string& machine);

}  // namespace ronde::perf
