// SPDX-License-Identifier: Apache-2.0
// The probe: which tunings are candidates, what counts as faster, and that all ranks get the
// leader's choice.
#include "collectives/in_host/slot_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "test/unit/collectives/boards.h"

namespace ronde::collectives {
namespace {

using base::Nanoseconds;
using base::Status;

Nanoseconds us(std::int64_t count) { return Nanoseconds(count * 1000); }

TEST(SlotProbe, CandidatesFitTheBufferAndAreAllDifferent) {
  for (const std::int32_t ranks : {1, 2, 3, 8, 64}) {
    for (const std::int64_t buffer : {std::int64_t{64} * ranks, std::int64_t{512} << 10}) {
      const std::vector<SlotTuning> all = tuning_candidates(ranks, buffer);
      ASSERT_FALSE(all.empty());
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i].piece_bytes % 64, 0);
        EXPECT_GE(all[i].piece_bytes, 64);
        EXPECT_LE(all[i].piece_bytes * ranks, buffer);
        EXPECT_EQ(std::count(all.begin(), all.end(), all[i]), 1);
      }
    }
  }
  EXPECT_EQ(tuning_candidates(2, 512 << 10).front(), SlotTuning());
}

TEST(SlotProbe, AnotherThanTheFirstMustBeFasterByMoreThanTheNoise) {
  EXPECT_EQ(best_tuning(std::vector{us(100), us(120)}), 0U);
  EXPECT_EQ(best_tuning(std::vector{us(100), us(91), us(110)}), 0U);
  EXPECT_EQ(best_tuning(std::vector{us(100), us(89), us(88)}), 2U);
}

TEST(SlotProbe, WhatWasNotMeasuredIsNoReasonToChange) {
  EXPECT_EQ(best_tuning(std::vector{Nanoseconds::max()}), 0U);
  EXPECT_EQ(best_tuning(std::vector{Nanoseconds::max(), Nanoseconds::max()}), 0U);
}

TEST(SlotProbe, EverybodyGetsWhatTheLeaderPublishes) {
  constexpr std::int32_t kRanks = 3;
  const std::vector<Board> boards = make_boards(small(kRanks));
  const std::vector<SlotTuning> candidates{{4096, StoreKind::kTemporal},
                                           {8192, StoreKind::kStreaming}};
  std::vector<std::thread> threads;
  for (const Board& board : boards) {
    threads.emplace_back([&] {
      Slots slots(board);
      const Status status = probe_tuning(slots, candidates, [] {
        std::this_thread::yield();
        return Status();
      });
      EXPECT_TRUE(status.ok()) << status.message();
      // The next collective follows where the probe's ended, on every rank.
      EXPECT_GT(slots.next_window(), 0U);
      EXPECT_EQ(std::count(candidates.begin(), candidates.end(), slots.board().tuning().value()),
                1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Returns the tuning that a probe of two ranks publishes.
SlotTuning probed(const std::vector<SlotTuning>& candidates) {
  const std::vector<Board> boards = make_boards(small(2));
  std::vector<std::thread> threads;
  for (const Board& board : boards) {
    threads.emplace_back([&] {
      Slots slots(board);
      const Status status = probe_tuning(slots, candidates, [] {
        std::this_thread::yield();
        return Status();
      });
      EXPECT_TRUE(status.ok()) << status.message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return boards[1].tuning().value();
}

// Small windows need a thousand synchronisations, those of whole buffers need four. On a busy
// machine that may not show in one run, but it shows in one of several.
TEST(SlotProbe, WhatIsFasterIsPublished) {
  const SlotTuning slow{1024, StoreKind::kTemporal};
  const SlotTuning fast{small(2).slot_bytes / 2, StoreKind::kTemporal};
  for (const std::vector<SlotTuning>& candidates :
       {std::vector{slow, fast}, std::vector{fast, slow}}) {
    int wrong = 0;
    while (wrong < 5 && probed(candidates) != fast) ++wrong;
    EXPECT_LT(wrong, 5);
  }
}

TEST(SlotProbe, OneChoiceIsPublishedWithoutMeasuring) {
  const std::vector<Board> boards = make_boards(small(2));
  Slots leader(boards[0]);
  const std::vector<SlotTuning> one{{128, StoreKind::kStreaming}};
  const Status nobody_waits = Status::error(base::Code::kDeadline, "nobody else is here");
  EXPECT_TRUE(probe_tuning(leader, one, [&] { return nobody_waits; }).ok());
  EXPECT_EQ(leader.next_window(), 0U);
  EXPECT_EQ(boards[1].tuning(), one[0]);
}

TEST(SlotProbe, TheErrorOfWhoWaitsEndsIt) {
  const std::vector<Board> boards = make_boards(small(2));
  Slots follower(boards[1]);
  const std::vector<SlotTuning> one{SlotTuning()};
  const Status status = probe_tuning(follower, one, [] {
    return Status::error(base::Code::kDeadline, "the leader did not come");
  });
  EXPECT_EQ(status.message(), "the leader did not come");
}

}  // namespace
}  // namespace ronde::collectives
