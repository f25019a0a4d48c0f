// SPDX-License-Identifier: Apache-2.0
// The memory traffic of an allreduce among the processes of a host with no runtime around it: what
// the machine itself allows. A vector is worked on in windows of one piece per rank; each rank has
// two buffers of a window in shared memory. In window w a rank
//
//   1. copies the pieces that others own into its buffer w % 2          and posts filled = w + 1;
//   2. when all have filled, sums its own piece over its memory and everybody's buffer, and stores
//      the sum into its memory and back over every contribution         and posts summed = w + 1;
//   3. when all have summed window w - 1, copies its buffer of that window into its memory.
//
// Two buffers are enough: a rank fills one again only after it has copied it out itself, and an
// owner stores into others' buffers only after they have filled them. A small vector takes one
// window in which everybody sums everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "test/bench/support/contender.h"
#include "test/bench/support/meeting.h"

namespace ronde::bench {

// Shared memory that the floor takes, whatever its pieces.
[[nodiscard]] std::size_t floor_bytes(int ranks);

// The floor with several sizes of pieces ("floor-32K" has 32 KiB), since it is the machine that
// decides which is best. `memory`: shared, zeroed, aligned to a page. At most kMostFloorRanks
// ranks.
void add_floor(Contenders& contenders, const Meeting& meeting, std::byte* memory);

// All ranks copy that much memory with memcpy, at the same time: "memcpy".
void add_memcpy(Contenders& contenders, std::int64_t most_bytes);

}  // namespace ronde::bench
