// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the floor: f32 sums of 2 to 8 ranks, with the widest vectors of the machine
// that compiles it.
#pragma once

#include <cstdint>

namespace ronde::bench {

inline constexpr int kMostFloorRanks = 8;

// Sums the vectors in order and stores the sum over every one of them. `own`: the one that lies in
// nobody's cache.
void sum_over_all(float* const* vectors, int count, std::int64_t elements, const float* own);
// ... or into `result`, which may be one of them.
void sum_into(float* result, const float* const* vectors, int count, std::int64_t elements);

void copy(float* to, const float* from, std::int64_t elements);

}  // namespace ronde::bench
