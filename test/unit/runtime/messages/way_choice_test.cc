// SPDX-License-Identifier: Apache-2.0
// Choosing between the board and the kernel's copy: both are tried, the faster one stays, and a
// machine that changes is noticed.
#include "runtime/messages/way_choice.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace ronde::runtime {
namespace {

using base::Nanoseconds;

constexpr std::size_t kBytes = 100'000;

// So many messages of that size; returns how many went by the kernel.
int let_go(WayChoice& choice, std::size_t bytes, std::uint32_t count, int board_us, int kernel_us) {
  int by_kernel = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool kernel = choice.next_by_kernel(bytes);
    choice.took(bytes, kernel, std::chrono::microseconds(kernel ? kernel_us : board_us));
    by_kernel += kernel ? 1 : 0;
  }
  return by_kernel;
}

constexpr std::uint32_t kRest = WayChoice::kPeriod - WayChoice::kTrials;

TEST(WayChoice, TriesBothAndStaysWithTheFaster) {
  WayChoice choice;
  EXPECT_EQ(let_go(choice, kBytes, WayChoice::kTrials, 20, 10), WayChoice::kTrials / 2);
  EXPECT_EQ(let_go(choice, kBytes, kRest, 20, 10), kRest);
  WayChoice other;
  EXPECT_EQ(let_go(other, kBytes, WayChoice::kTrials, 10, 20), WayChoice::kTrials / 2);
  EXPECT_EQ(let_go(other, kBytes, kRest, 10, 20), 0);
}

// It leaves the sender's core alone.
TEST(WayChoice, WhereItIsCloseTheKernelDoesIt) {
  WayChoice choice;
  let_go(choice, kBytes, WayChoice::kTrials, 18, 20);
  EXPECT_EQ(let_go(choice, kBytes, kRest, 18, 20), kRest);
}

TEST(WayChoice, OneThatWasHeldUpDecidesNothing) {
  WayChoice choice;
  EXPECT_FALSE(choice.next_by_kernel(kBytes));
  choice.took(kBytes, false, Nanoseconds(20'000));
  EXPECT_TRUE(choice.next_by_kernel(kBytes));
  choice.took(kBytes, true, Nanoseconds(9'000'000));
  let_go(choice, kBytes, WayChoice::kTrials - 2, 20, 10);
  EXPECT_TRUE(choice.next_by_kernel(kBytes));
}

TEST(WayChoice, NoticesAMachineThatChanges) {
  WayChoice choice;
  let_go(choice, kBytes, WayChoice::kPeriod, 20, 10);
  let_go(choice, kBytes, WayChoice::kTrials, 20, 30);
  EXPECT_EQ(let_go(choice, kBytes, kRest, 20, 30), 0);
}

TEST(WayChoice, EachSizeHasItsOwn) {
  WayChoice choice;
  let_go(choice, kBytes, WayChoice::kTrials, 20, 10);
  let_go(choice, 16 * kBytes, WayChoice::kTrials, 10, 20);
  EXPECT_TRUE(choice.next_by_kernel(kBytes));
  EXPECT_FALSE(choice.next_by_kernel(16 * kBytes));
  // The least and the largest are sizes like all others.
  let_go(choice, 0, WayChoice::kTrials, 20, 10);
  EXPECT_TRUE(choice.next_by_kernel(1));
  let_go(choice, std::size_t{1} << 40, WayChoice::kTrials, 20, 10);
  EXPECT_TRUE(choice.next_by_kernel(std::size_t{1} << 50));
}

TEST(WayChoice, MessagesOfTwoSizesInTurnsAreComparedByTheByte) {
  WayChoice choice;
  for (std::uint32_t i = 0; i < WayChoice::kTrials; ++i) {
    const std::size_t bytes = i % 2 == 0 ? 33'000 : 64'000;
    const bool kernel = choice.next_by_kernel(bytes);
    choice.took(bytes, kernel, Nanoseconds(bytes * (kernel ? 22 : 30) / 10));
  }
  EXPECT_TRUE(choice.next_by_kernel(64'000));
}

TEST(WayChoice, ManyThatAreUnderWayAtOnceGoThroughTheBoardUntilTheFirstHaveArrived) {
  WayChoice choice;
  for (std::uint32_t i = 0; i < WayChoice::kTrials; ++i) (void)choice.next_by_kernel(kBytes);
  EXPECT_FALSE(choice.next_by_kernel(kBytes));
  choice.took(kBytes, true, Nanoseconds(10'000));
  choice.took(kBytes, false, Nanoseconds(20'000));
  EXPECT_TRUE(choice.next_by_kernel(kBytes));
}

TEST(WayChoice, AWayThatNeverArrivesIsNotTaken) {
  WayChoice choice;
  for (std::uint32_t i = 0; i < WayChoice::kTrials; ++i) {
    const bool kernel = choice.next_by_kernel(kBytes);
    if (!kernel) choice.took(kBytes, false, Nanoseconds(1));
  }
  EXPECT_FALSE(choice.next_by_kernel(kBytes));
}

}  // namespace
}  // namespace ronde::runtime
