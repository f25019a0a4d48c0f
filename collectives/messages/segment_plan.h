// SPDX-License-Identifier: Apache-2.0
// The arithmetic that cuts vectors into segments and shares them among lanes. Pure.
#pragma once

#include <cstdint>

#include "base/numbers.h"
#include "fusion/chunks.h"

namespace ronde::collectives {

// The number of segments of a collective that are in flight at once: enough that one is reduced or
// copied while others are on the wire.
inline constexpr std::int64_t kSegmentsInFlight = 4;

// The most bytes of a message between hosts. Over TCP, Open MPI sends up to 64 KiB with its header
// without asking the receiver first. On lines of 1 Gbit/s a ring of two hosts reached 64 % of the
// line with segments of 128 KiB, and 97 % with these; one of four hosts 90 % and 96 %.
inline constexpr std::int64_t kMessageBytes = 60 << 10;

// Returns segment `index` of a part of `bytes` bytes; empty beyond the end.
[[nodiscard]] fusion::ByteRange segment_of(base::Bytes bytes, base::Bytes segment,
                                           std::int64_t index);

// Returns the length of the segments for parts of up to `largest` bytes when the caller wants
// `wanted` bytes: whole lines, so that no element is split, and no more memory than needed. What
// fits one segment of the wanted length still fits one, so that two ranks whose largest parts
// differ cut a part that they share alike.
[[nodiscard]] base::Bytes segment_length(base::Bytes wanted, base::Bytes largest);

// The segments of one lane: index, index + lanes, index + 2 lanes, ...
struct LaneOfSegments {
  std::int64_t index = 0;
  std::int64_t lanes = 0;
  std::int64_t segments = 0;  // how many it carries

  [[nodiscard]] std::int64_t segment(std::int64_t round) const { return index + round * lanes; }
};

// Return how many lanes share `segments` segments, and which of them a lane carries.
[[nodiscard]] std::int64_t lanes_for(std::int64_t segments);
[[nodiscard]] LaneOfSegments lane_of_segments(std::int64_t segments, std::int64_t index);

}  // namespace ronde::collectives
