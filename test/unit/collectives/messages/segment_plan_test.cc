// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/segment_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace ronde::collectives {
namespace {

using base::Bytes;

TEST(Segments, CoverEverythingOnce) {
  for (std::int64_t bytes = 0; bytes <= 700; ++bytes) {
    for (const std::int64_t segment : {64, 128, 192}) {
      std::int64_t end = 0;
      for (std::int64_t index = 0; index < 13; ++index) {
        const fusion::ByteRange range = segment_of(Bytes(bytes), Bytes(segment), index);
        ASSERT_EQ(range.begin, end);
        ASSERT_TRUE(range.length() == segment || range.end == bytes);
        end = range.end;
      }
      ASSERT_EQ(end, bytes);
    }
  }
  const fusion::ByteRange far = segment_of(Bytes(100), Bytes(64), std::int64_t{1} << 60);
  EXPECT_EQ(far.length(), 0);
}

TEST(Segments, AreWholeLinesAndNotLongerThanNeeded) {
  EXPECT_EQ(segment_length(Bytes(1), Bytes(1000)).value(), 64);
  EXPECT_EQ(segment_length(Bytes(65), Bytes(1000)).value(), 128);
  EXPECT_EQ(segment_length(Bytes(1 << 20), Bytes(100)).value(), 128);
  EXPECT_EQ(segment_length(Bytes(1 << 20), Bytes(0)).value(), 64);
  EXPECT_EQ(segment_length(Bytes(0), Bytes(0)).value(), 64);
}

// Ranks of an all-to-all have blocks of different lengths, but two cut the block that they share
// alike.
TEST(Segments, OfASharedPartDoNotDependOnOtherParts) {
  for (std::int64_t shared = 0; shared <= 400; ++shared) {
    for (std::int64_t wanted = 1; wanted <= 300; wanted += 13) {
      const Bytes mine = segment_length(Bytes(wanted), Bytes(shared));
      for (std::int64_t largest = shared; largest <= 500; largest += 29) {
        const Bytes theirs = segment_length(Bytes(wanted), Bytes(largest));
        for (std::int64_t index = 0; index < 8; ++index) {
          ASSERT_EQ(segment_of(Bytes(shared), mine, index),
                    segment_of(Bytes(shared), theirs, index));
        }
      }
    }
  }
}

TEST(Lanes, CarryEverySegmentOnceAndAsManyAsTheOthers) {
  EXPECT_EQ(lanes_for(0), 0);
  for (std::int64_t segments = 1; segments <= 40; ++segments) {
    const std::int64_t lanes = lanes_for(segments);
    ASSERT_LE(lanes, kSegmentsInFlight);
    std::vector<int> carried(static_cast<std::size_t>(segments), 0);
    for (std::int64_t index = 0; index < lanes; ++index) {
      const LaneOfSegments lane = lane_of_segments(segments, index);
      ASSERT_GE(lane.segments, segments / lanes);
      ASSERT_LE(lane.segments, segments / lanes + 1);
      for (std::int64_t round = 0; round < lane.segments; ++round) {
        ++carried.at(static_cast<std::size_t>(lane.segment(round)));
      }
    }
    for (const int times : carried) ASSERT_EQ(times, 1);
  }
}

}  // namespace
}  // namespace ronde::collectives
