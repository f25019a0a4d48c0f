// SPDX-License-Identifier: Apache-2.0
// What a benchmark program says at its end.
#pragma once

#include <vector>

#include "test/bench/support/sampling.h"

namespace ronde::bench {

// A table for people, or JSON for rows.py:
//   {"ranks": 2, "samples": [{"contender": "floor-64K", "bytes": 8, "repetition": 0,
//                             "median_us": 0.4, "min_us": 0.4, "wrong": 0}]}
void print(const std::vector<Sample>& samples, int ranks, bool json);

[[nodiscard]] bool any_wrong(const std::vector<Sample>& samples);

}  // namespace ronde::bench
