// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/job_shape.h"
#include "collectives/two_level/context.h"

namespace ronde::collectives {

using base::JobShape;

namespace {

fusion::FusedView view_of(std::int64_t bytes, int chunks) {
  // The view has no memory, since a plan uses lengths alone.
  return {{base::TensorView{nullptr, nullptr, base::Elements(bytes), base::DType::kU8}}, chunks};
}

TEST(BlockPlan, PartsCoverEveryByteOnceAndDifferByALine) {
  for (const int chunks : {1, 2, 3, 5}) {
    for (const std::int32_t slices : {1, 2, 3}) {
      for (const std::int64_t bytes : {0, 1, 63, 64, 65, 700, 6400, 9999, 100'000}) {
        for (const std::int64_t block : {64, 640, 5000, 1 << 20}) {
          const fusion::FusedView view = view_of(bytes, chunks);
          const BlockPlan plan(view, slices, base::Bytes(block));
          for (int chunk = 0; chunk < chunks; ++chunk) {
            std::int64_t next = 0;
            std::int64_t least = bytes;
            std::int64_t most = 0;
            for (std::int64_t k = 0; k < plan.blocks(); ++k) {
              for (std::int32_t slice = 0; slice < slices; ++slice) {
                const fusion::ByteRange part = plan.part(k, slice, chunk);
                ASSERT_EQ(part.begin, next);
                ASSERT_GE(part.length(), 0);
                next = part.end;
                const std::int64_t lines = base::ceil_div(part.length(), fusion::kLineBytes);
                least = std::min(least, lines);
                most = std::max(most, lines);
              }
            }
            ASSERT_EQ(next, view.chunk_bytes(chunk).value());
            // Slices of one block differ by a line, and blocks by another one.
            ASSERT_LE(most - std::min(least, most), 2);
          }
        }
      }
    }
  }
}

TEST(BlockPlan, NoSliceHasMoreThanItMay) {
  for (const int chunks : {1, 2, 3, 5}) {
    for (const std::int32_t slices : {1, 2, 3}) {
      for (const std::int64_t bytes : {1, 700, 9999, 100'000}) {
        for (const std::int64_t block : {64, 640, 5000}) {
          const BlockPlan plan(view_of(bytes, chunks), slices, base::Bytes(block));
          EXPECT_LE(plan.slice_bytes().value(), std::max<std::int64_t>(block, 64 * chunks));
          for (std::int64_t k = 0; k < plan.blocks(); ++k) {
            for (std::int32_t slice = 0; slice < slices; ++slice) {
              std::int64_t sum = 0;
              for (const fusion::ViewPart& part : plan.parts(k, slice)) sum += part.range.length();
              EXPECT_LE(sum, plan.slice_bytes().value());
            }
          }
        }
      }
    }
  }
}

TEST(BlockPlan, AVectorNearTheEndOfWhatFits) {
  constexpr std::int64_t kBytes = (std::int64_t{1} << 62) - 7;
  const BlockPlan plan(view_of(kBytes, 3), 2, base::Bytes(1 << 20));
  std::int64_t last = 0;
  for (int chunk = 0; chunk < 3; ++chunk) last += plan.part(plan.blocks() - 1, 1, chunk).end;
  EXPECT_EQ(last, kBytes);
}

TEST(Slices, AShortVectorIsNotWorthAMessageFromEveryRank) {
  const JobShape shape =
      JobShape::of_leaders(std::vector<std::int32_t>{0, 0, 0, 0, 4, 4, 4}).value();
  EXPECT_EQ(slices_for(base::Bytes(0), shape), 1);
  EXPECT_EQ(slices_for(base::Bytes(8191), shape), 1);
  EXPECT_EQ(slices_for(base::Bytes(8192), shape), 2);
  EXPECT_EQ(slices_for(base::Bytes(1 << 20), shape), 3) << "as many as the smallest host has";
}

}  // namespace
}  // namespace ronde::collectives
