// SPDX-License-Identifier: Apache-2.0
// How ranks count themselves in at an entry of the plan, and what they leave there.
#include <gtest/gtest.h>

#include "collectives/board/board.h"
#include "test/unit/collectives/boards.h"

namespace ronde::collectives {
namespace {

TEST(Arrivals, CountUntilTheLastAndFailOnAnotherGeneration) {
  const auto boards = make_boards(small(3));
  EXPECT_EQ(boards[0].arrive(5, 0, 3), Arrival::kArrived);
  EXPECT_EQ(boards[1].arrive(5, 1, 3), Arrival::kStale);
  EXPECT_EQ(boards[1].arrive(5, 0, 3), Arrival::kArrived);
  EXPECT_EQ(boards[0].arrival(5).count, 2U);
  EXPECT_EQ(boards[2].arrive(5, 0, 3), Arrival::kLast);
  boards[0].reset(5, 0, 3);
  EXPECT_EQ(boards[1].arrive(5, 0, 3), Arrival::kArrived);
  EXPECT_EQ(boards[0].close_generation(5, 7), 1U);
  EXPECT_EQ(boards[2].arrive(5, 0, 3), Arrival::kStale);
  EXPECT_EQ(boards[2].arrival(5).generation, 7U);
  EXPECT_EQ(boards[2].arrive(5, 7, 1), Arrival::kLast);
  EXPECT_EQ(boards[2].arrival(4).count, 0U);
}

// Whether a step is numbered goes with the arrivals of one generation and step.
TEST(Arrivals, AreNumberedUntilTheyAreReset) {
  const auto boards = make_boards(small(3));
  EXPECT_EQ(boards[0].arrive(6, 0, 2, true), Arrival::kArrived);
  EXPECT_TRUE(boards[1].arrival(6).numbered);
  EXPECT_EQ(boards[1].arrive(6, 0, 2), Arrival::kLast);
  EXPECT_TRUE(boards[1].arrival(6).numbered);
  EXPECT_EQ(boards[1].arrival(6).count, 2U);
  boards[0].reset(6, 0, 2);
  EXPECT_FALSE(boards[1].arrival(6).numbered);
  EXPECT_EQ(boards[0].arrive(6, 0, 2, true), Arrival::kArrived);
  EXPECT_EQ(boards[1].close_generation(6, 1), 1U);
  EXPECT_FALSE(boards[1].arrival(6).numbered);
}

TEST(Arrivals, MarksSayInWhichStepARankIs) {
  const auto boards = make_boards(small(3));
  boards[1].mark_arrived(5, 0, 77);
  EXPECT_EQ(boards[0].step_of(1, 5), 77U);
  EXPECT_EQ(boards[0].step_of(0, 5), 0U);
  EXPECT_EQ(boards[0].step_of(1, 4), 0U);
  EXPECT_TRUE(boards[0].has_arrived(1, 5, 0));
  EXPECT_FALSE(boards[0].has_arrived(0, 5, 0));
  EXPECT_FALSE(boards[0].has_arrived(1, 4, 0));
  EXPECT_FALSE(boards[0].has_arrived(1, 5, 1)) << "that was for the step of batch 1";
  boards[1].mark_arrived(5, 1);
  EXPECT_TRUE(boards[0].has_arrived(1, 5, 1));
  boards[1].unmark_arrived(5);
  EXPECT_FALSE(boards[0].has_arrived(1, 5, 0));
}

TEST(Arrivals, MarksSayWhenARankArrived) {
  const auto boards = make_boards(small(3));
  EXPECT_EQ(boards[0].arrival_time(1, 5), base::Instant{});
  boards[1].mark_arrived(5, 0, 0, base::Instant(1234));
  EXPECT_EQ(boards[0].arrival_time(1, 5), base::Instant(1234));
  EXPECT_EQ(boards[0].arrival_time(2, 5), base::Instant{});
  EXPECT_EQ(boards[0].arrival_time(1, 4), base::Instant{});
}

}  // namespace
}  // namespace ronde::collectives
