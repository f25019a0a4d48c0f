// SPDX-License-Identifier: Apache-2.0
// How vectors are cut into what is in flight at once. Pure; segment_lanes.h carries the segments.
#pragma once

#include <cstdint>

#include "base/numbers.h"
#include "fusion/chunks.h"

namespace ronde::collectives {

// How many segments of a collective are under way at once: enough that one is reduced or copied
// while others are on the wire.
inline constexpr std::int64_t kSegmentsInFlight = 4;

// The most bytes of a message between hosts. Over TCP, Open MPI sends up to 64 KiB with its header
// without asking the receiver first. On lines of 1 Gbit/s a ring of two hosts reached 64 % of the
// line with segments of 128 KiB, and 97 % with these; one of four hosts 90 % and 96 %.
inline constexpr std::int64_t kMessageBytes = 60 << 10;

// Segment `index` of something of `bytes` bytes; empty beyond the end.
[[nodiscard]] fusion::ByteRange segment_of(base::Bytes bytes, base::Bytes segment,
                                           std::int64_t index);

// The length of the segments that are used for parts of up to `largest` bytes when `wanted` is
// asked for: whole lines, so that no element is split, and no more memory than needed. What fits
// one segment of the wanted length still fits one, so two ranks whose largest parts differ cut a
// part that they share in the same way.
[[nodiscard]] base::Bytes segment_length(base::Bytes wanted, base::Bytes largest);

// The segments of one lane: index, index + lanes, index + 2 lanes, ...
struct LaneOfSegments {
  std::int64_t index = 0;
  std::int64_t lanes = 0;
  std::int64_t segments = 0;  // how many it carries

  [[nodiscard]] std::int64_t segment(std::int64_t round) const { return index + round * lanes; }
};

// How many lanes share `segments` segments, and what each of them carries.
[[nodiscard]] std::int64_t lanes_for(std::int64_t segments);
[[nodiscard]] LaneOfSegments lane_of_segments(std::int64_t segments, std::int64_t index);

}  // namespace ronde::collectives
