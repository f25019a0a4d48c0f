// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/segment_plan.h"

#include <algorithm>

namespace ronde::collectives {

fusion::ByteRange segment_of(base::Bytes bytes, base::Bytes segment, std::int64_t index) {
  // The index is compared by division, since index * segment may overflow.
  if (index >= base::ceil_div(bytes.value(), segment.value()))
    return {bytes.value(), bytes.value()};
  const std::int64_t begin = index * segment.value();
  return {begin, begin + std::min(segment.value(), bytes.value() - begin)};
}

base::Bytes segment_length(base::Bytes wanted, base::Bytes largest) {
  const std::int64_t lines =
      std::max<std::int64_t>(1, std::min(base::ceil_div(wanted.value(), fusion::kLineBytes),
                                         base::ceil_div(largest.value(), fusion::kLineBytes)));
  return base::Bytes(lines * fusion::kLineBytes);
}

std::int64_t lanes_for(std::int64_t segments) { return std::min(kSegmentsInFlight, segments); }

LaneOfSegments lane_of_segments(std::int64_t segments, std::int64_t index) {
  const std::int64_t lanes = lanes_for(segments);
  base::check(index >= 0 && index < lanes, "lane_of_segments: no such lane");
  return {.index = index, .lanes = lanes, .segments = base::ceil_div(segments - index, lanes)};
}

}  // namespace ronde::collectives
