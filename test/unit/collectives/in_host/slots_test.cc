// SPDX-License-Identifier: Apache-2.0
// The slots: the places of buffers, the values of counters, and which ranks are rung.
#include "collectives/in_host/slots.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "test/unit/collectives/boards.h"

namespace ronde::collectives {
namespace {

std::vector<Slots> make_slots(std::int32_t ranks, bool heap = true) {
  std::vector<Slots> slots;
  for (const Board& board : make_boards(small(ranks), heap)) slots.emplace_back(board);
  return slots;
}

TEST(Slots, BuffersAreApartAndOnLinesAndShared) {
  std::vector<Slots> slots = make_slots(3);
  EXPECT_EQ(slots[0].ranks(), 3);
  EXPECT_EQ(slots[2].rank(), 2);
  const std::int64_t bytes = slots[0].buffer_bytes();
  EXPECT_EQ(bytes % 64, 0);
  std::uint8_t mark = 0;
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    for (std::uint64_t window = 0; window < 3; ++window) {
      std::byte* const buffer = slots[0].buffer(rank, window);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer) % 64, 0U);
      EXPECT_EQ(buffer, slots[0].buffer(rank, window + 3)) << "three buffers take turns";
      std::memset(buffer, ++mark, static_cast<std::size_t>(bytes));
      std::memset(slots[0].inline_bytes(rank, window), mark, Slots::kInlineBytes);
    }
  }
  mark = 0;
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    for (std::uint64_t window = 0; window < 3; ++window) {
      const auto expected = static_cast<std::byte>(++mark);
      EXPECT_EQ(slots[1].buffer(rank, window)[0], expected);
      EXPECT_EQ(slots[1].buffer(rank, window)[bytes - 1], expected);
      EXPECT_EQ(slots[1].inline_bytes(rank, window)[0], expected);
      EXPECT_EQ(slots[1].inline_bytes(rank, window)[Slots::kInlineBytes - 1], expected);
    }
  }
  EXPECT_FALSE(slots[1].filled(0, 0)) << "what travels beside a counter is not in it";
}

TEST(Slots, ACounterSaysHowFarARankIs) {
  std::vector<Slots> slots = make_slots(2);
  EXPECT_FALSE(slots[1].filled(0, 0));
  slots[0].post_filled(0);
  EXPECT_TRUE(slots[1].filled(0, 0));
  EXPECT_FALSE(slots[1].done(0, 0));
  slots[0].post_done(0);
  EXPECT_TRUE(slots[1].done(0, 0));
  EXPECT_FALSE(slots[1].filled(0, 1));
  // A rank need not post "done": the next "filled" includes it.
  slots[0].post_filled(1);
  slots[0].post_filled(2);
  EXPECT_TRUE(slots[1].done(0, 1));
  EXPECT_FALSE(slots[1].done(0, 2));
}

TEST(Slots, FilledMayRunAheadOfDone) {
  std::vector<Slots> slots = make_slots(2);
  // Returns how many windows rank 1 sees filled and done.
  const auto seen = [&] {
    std::pair<std::uint64_t, std::uint64_t> counts;
    while (slots[1].filled(0, counts.first)) ++counts.first;
    while (slots[1].done(0, counts.second)) ++counts.second;
    return counts;
  };
  using Counts = std::pair<std::uint64_t, std::uint64_t>;
  slots[0].post_filled(0);
  slots[0].post_filled_ahead(1);
  EXPECT_EQ(seen(), Counts(2, 0));
  for (std::uint64_t window = 0; window < 20; ++window) {
    slots[0].post_done(window);
    EXPECT_EQ(seen(), Counts(window + 2, window + 1));
    slots[0].post_filled_ahead(window + 2);
    EXPECT_EQ(seen(), Counts(window + 3, window + 1));
  }
  slots[0].post_done(20);
  slots[0].post_done(21);
  EXPECT_EQ(seen(), Counts(22, 22));
  slots[0].post_done(22);
  EXPECT_EQ(seen(), Counts(23, 23)) << "done without anything to fill";
  slots[0].post_filled(40);
  EXPECT_EQ(seen(), Counts(41, 40));
}

TEST(Slots, AllMeansAllOthers) {
  std::vector<Slots> slots = make_slots(3);
  slots[1].post_filled(0);
  EXPECT_FALSE(slots[0].all_filled(0));
  slots[2].post_filled(0);
  EXPECT_TRUE(slots[0].all_filled(0)) << "a rank does not wait for itself";
  EXPECT_FALSE(slots[1].all_filled(0)) << "nor for those who have not come";
  EXPECT_FALSE(slots[0].all_done(0));
  slots[1].post_done(0);
  slots[2].post_done(0);
  EXPECT_TRUE(slots[0].all_done(0));
}

TEST(Slots, ABufferIsFilledAgainWhenAllAreDoneWithItsLastWindow) {
  std::vector<Slots> slots = make_slots(3);
  EXPECT_TRUE(slots[0].may_fill(0));
  EXPECT_TRUE(slots[0].may_fill(2));
  EXPECT_FALSE(slots[0].may_fill(3));
  slots[1].post_done(0);
  EXPECT_FALSE(slots[0].may_fill(3));
  slots[2].post_done(0);
  EXPECT_TRUE(slots[0].may_fill(3));
  EXPECT_FALSE(slots[0].may_fill(4));
}

TEST(Slots, WindowsAreNumberedOverTheLifeOfTheBoard) {
  std::vector<Slots> slots = make_slots(1);
  EXPECT_EQ(slots[0].next_window(), 0U);
  slots[0].use_windows(3);
  slots[0].use_windows(0);
  EXPECT_EQ(slots[0].next_window(), 3U);
  EXPECT_TRUE(slots[0].may_fill(3)) << "alone there is nobody to wait for";
}

TEST(Slots, OnlyWhoAskedIsRung) {
  std::vector<Slots> slots = make_slots(3);
  const auto rings = [&](std::int32_t rank) { return slots[0].board().doorbell(rank).rings(); };
  slots[0].post_filled(0);
  EXPECT_EQ(rings(1), 0U);
  slots[1].want_rings(true);
  slots[0].post_done(0);
  slots[2].post_filled(0);
  EXPECT_EQ(rings(1), 2U) << "every post of anybody else";
  slots[1].post_filled(0);
  EXPECT_EQ(rings(1), 2U) << "not its own";
  slots[1].want_rings(true);
  slots[1].want_rings(false);
  slots[0].post_filled(1);
  EXPECT_EQ(rings(1), 2U);
  EXPECT_EQ(rings(0), 0U);
  EXPECT_EQ(rings(2), 0U);
}

// Two ranks post in turn. Each sleeps as soon as the other has not posted, so that one wants rings
// while the other posts at every possible moment. Returns false when a ring was lost.
bool post_in_turn(Slots& mine, std::uint64_t rounds) {
  const std::int32_t other = 1 - mine.rank();
  const Doorbell bell = mine.board().doorbell(mine.rank());
  for (std::uint64_t window = 0; window < rounds; ++window) {
    if (mine.rank() == 0) mine.post_filled(window);
    while (!mine.filled(other, window)) {
      const std::uint64_t seen = bell.rings();
      mine.want_rings(true);
      bool woken = true;
      if (!mine.filled(other, window)) {
        bell.arm();
        if (bell.rings() == seen) {
          pollfd entry{bell.event_fd(), POLLIN, 0};
          woken = ::poll(&entry, 1, kHangMs) == 1;
        }
        bell.disarm();
        bell.drain();
      }
      mine.want_rings(false);
      if (!woken) return false;
    }
    if (mine.rank() == 1) mine.post_filled(window);
  }
  return true;
}

TEST(Slots, NoRingIsLostBetweenThreads) {
  std::vector<Slots> slots = make_slots(2);
  bool other = false;
  std::thread thread([&] { other = post_in_turn(slots[1], 30000); });
  EXPECT_TRUE(post_in_turn(slots[0], 30000));
  thread.join();
  EXPECT_TRUE(other);
}

TEST(Slots, NoRingIsLostBetweenProcesses) {
  std::vector<Slots> slots = make_slots(2, false);
  run_processes(2, [&](std::int32_t rank) {
    return post_in_turn(slots[static_cast<std::size_t>(rank)], 30000);
  });
}

// The poster never sleeps, and posts after varying delays while the other calls want_rings().
TEST(Slots, NoRingIsLostWhileAsking) {
  constexpr std::uint64_t kRounds = 50000;
  std::vector<Slots> slots = make_slots(2);
  std::atomic<std::uint64_t> go{0};
  std::thread poster([&] {
    for (std::uint64_t window = 0; window < kRounds; ++window) {
      while (go.load(std::memory_order_acquire) <= window) std::this_thread::yield();
      for (std::uint64_t i = 0; i < window % 200; ++i) (void)go.load(std::memory_order_relaxed);
      slots[0].post_filled(window);
    }
  });
  const Doorbell bell = slots[1].board().doorbell(1);
  bool woken = true;
  for (std::uint64_t window = 0; window < kRounds && woken; ++window) {
    go.store(window + 1, std::memory_order_release);
    const std::uint64_t seen = bell.rings();
    slots[1].want_rings(true);
    if (!slots[1].filled(0, window)) {
      bell.arm();
      if (bell.rings() == seen) {
        pollfd entry{bell.event_fd(), POLLIN, 0};
        woken = ::poll(&entry, 1, kHangMs) == 1;
      }
      bell.disarm();
      bell.drain();
    }
    slots[1].want_rings(false);
    while (woken && !slots[1].filled(0, window)) std::this_thread::yield();
  }
  go.store(kRounds, std::memory_order_release);
  poster.join();
  EXPECT_TRUE(woken);
}

// Both begin at the same moment, as nearly as two threads can, so that want_rings() and the post
// cross: either one sees the post, or the other one rings. Weaker orders than seq_cst fail here.
class Crossing {
 public:
  explicit Crossing(std::vector<Slots>& slots) : poster_(slots[0]), asker_(slots[1]) {}

  // Returns how often neither saw the other.
  [[nodiscard]] int missed(std::uint64_t rounds) {
    const Doorbell bell = asker_.board().doorbell(asker_.rank());
    std::thread thread([&] {
      for (std::uint64_t window = 0; window < rounds; ++window) {
        meet(begun_[0], begun_[1], window);
        for (std::uint64_t i = 0; i < window % 16; ++i) (void)begun_[1].load();
        poster_.post_filled(window);
        meet(ended_[0], ended_[1], window);
      }
    });
    int count = 0;
    for (std::uint64_t window = 0; window < rounds; ++window) {
      const std::uint64_t before = bell.rings();
      meet(begun_[1], begun_[0], window);
      for (std::uint64_t i = 0; i < window / 16 % 16; ++i) (void)begun_[0].load();
      asker_.want_rings(true);
      const bool seen = asker_.filled(poster_.rank(), window);
      meet(ended_[1], ended_[0], window);
      if (!seen && bell.rings() == before) ++count;
      asker_.want_rings(false);
    }
    thread.join();
    return count;
  }

 private:
  struct alignas(128) Word : std::atomic<std::uint64_t> {};

  static void meet(Word& mine, const Word& other, std::uint64_t window) {
    mine.store(window + 1);
    for (int looks = 1; other.load() <= window; ++looks) {
      if (looks % 1000 == 0) std::this_thread::yield();
    }
  }

  Slots& poster_;
  Slots& asker_;
  std::array<Word, 2> begun_{};
  std::array<Word, 2> ended_{};
};

TEST(Slots, AWishAndAPostThatCrossDoNotMissEachOther) {
  std::vector<Slots> slots = make_slots(2);
  EXPECT_EQ(Crossing(slots).missed(150000), 0);
}

}  // namespace
}  // namespace ronde::collectives
