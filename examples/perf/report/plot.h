// SPDX-License-Identifier: Apache-2.0
// A picture of latency and bandwidth over the sizes, as SVG. Pure.
#pragma once

#include <span>
#include <string>

#include "examples/perf/measure/statistics.h"

namespace ronde::perf {

// Draws the first operation, dtype and op among the summaries, in place if that was measured.
// `machine` is written below the picture.
[[nodiscard]] std::string plot(std::span<const Summary> summaries, const std::string& machine);

}  // namespace ronde::perf
