// SPDX-License-Identifier: Apache-2.0
// Windows and pieces: all small cases, and sizes beyond any memory.
#include "collectives/kernels/window_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace ronde::collectives {
namespace {

constexpr std::int64_t kLine = 64;

// Expects that the pieces of a window lie one after another from `begin`, are cut at lines, are not
// too long, and differ by at most a line. Returns where the window ends.
std::int64_t expect_pieces(const WindowPlan& plan, std::int64_t window, std::int32_t ranks,
                           std::int64_t element_bytes, std::int64_t elements, std::int64_t begin) {
  const std::int64_t per_line = kLine / element_bytes;
  std::int64_t longest = 0;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  std::int64_t next = begin;
  for (std::int32_t owner = 0; owner < ranks; ++owner) {
    const ElementRange piece = plan.piece(window, owner);
    EXPECT_EQ(piece.begin, next) << "window " << window << ", owner " << owner;
    EXPECT_LE(piece.begin, piece.end);
    EXPECT_TRUE(piece.begin % per_line == 0 || piece.begin == elements);
    EXPECT_LE(piece.length() * element_bytes, plan.piece_bytes());
    const std::int64_t lines = (piece.length() + per_line - 1) / per_line;
    longest = std::max(longest, lines);
    shortest = std::min(shortest, lines);
    next = piece.end;
  }
  EXPECT_LE(longest - shortest, 1) << "window " << window;
  EXPECT_EQ(plan.window(window), (ElementRange{begin, next}));
  return next;
}

void expect_partition(std::int64_t elements, std::int64_t element_bytes, std::int32_t ranks,
                      std::int64_t piece_bytes) {
  const WindowPlan plan(elements, element_bytes, ranks, piece_bytes);
  EXPECT_EQ(plan.piece_bytes(), std::max<std::int64_t>(piece_bytes / kLine, 1) * kLine);
  const std::int64_t window_bytes = plan.piece_bytes() * ranks;
  EXPECT_EQ(plan.windows(), (elements * element_bytes + window_bytes - 1) / window_bytes)
      << "no more windows than it takes";
  std::int64_t next = 0;
  for (std::int64_t window = 0; window < plan.windows(); ++window) {
    next = expect_pieces(plan, window, ranks, element_bytes, elements, next);
  }
  EXPECT_EQ(next, elements);
}

TEST(WindowPlan, PiecesPartitionEverySmallVector) {
  for (const std::int64_t element_bytes : {1, 2, 4, 8}) {
    const std::int64_t per_line = kLine / element_bytes;
    for (const std::int32_t ranks : {1, 2, 3, 4, 5, 8, 64}) {
      for (const std::int64_t piece_bytes : {64, 100, 128, 320}) {
        for (std::int64_t lines = 0; lines < 40; ++lines) {
          for (const std::int64_t more : {std::int64_t{0}, std::int64_t{1}, per_line - 1}) {
            expect_partition(lines * per_line + more, element_bytes, ranks, piece_bytes);
            ASSERT_FALSE(testing::Test::HasFailure())
                << lines << " lines and " << more << " of " << element_bytes << " over " << ranks
                << " in pieces of " << piece_bytes;
          }
        }
      }
    }
  }
}

TEST(WindowPlan, NothingHasNoWindow) { EXPECT_EQ(WindowPlan(0, 4, 3, 4096).windows(), 0); }

// Every window has work for every owner as long as there are enough lines.
TEST(WindowPlan, PiecesAreEven) {
  const WindowPlan plan(5 * 4096 / 4 + 1, 4, 4, 4096);  // a line more than five pieces
  ASSERT_EQ(plan.windows(), 2);
  for (std::int64_t window = 0; window < 2; ++window) {
    for (std::int32_t owner = 0; owner < 4; ++owner) {
      EXPECT_GE(plan.piece(window, owner).length(), 39 * 16) << window << " " << owner;
    }
  }
}

class HugeWindowPlanTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(HugeWindowPlanTest, NothingOverflows) {
  const std::int64_t elements = GetParam();
  for (const std::int32_t ranks : {1, 2, 3, 64}) {
    for (const std::int64_t piece_bytes : {64, 4096, 65536, 1 << 30}) {
      const WindowPlan plan(elements, 1, ranks, piece_bytes);
      EXPECT_EQ(plan.window(0).begin, 0);
      const std::int64_t last = plan.windows() - 1;
      for (const std::int64_t window : {std::int64_t{0}, last / 3, last / 2, last}) {
        expect_pieces(plan, window, ranks, 1, elements, plan.window(window).begin);
        if (window == 0) continue;
        EXPECT_EQ(plan.window(window - 1).end, plan.window(window).begin);
      }
      EXPECT_EQ(plan.window(last).end, elements);
      ASSERT_FALSE(HasFailure()) << ranks << " ranks, pieces of " << piece_bytes;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, HugeWindowPlanTest,
                         testing::Values((std::int64_t{1} << 31) - 1, (std::int64_t{1} << 31) + 1,
                                         (std::int64_t{1} << 40) + 12345, std::int64_t{1} << 60,
                                         (std::int64_t{1} << 60) + 77));

}  // namespace
}  // namespace ronde::collectives
