// SPDX-License-Identifier: Apache-2.0
// All collectives of a host, back to back, in random sequences and sizes: threads over a board on
// the heap, where the thread sanitizer sees every access, and processes over a memfd. Ranks sleep
// on their doorbells, or watch. (test/property/in_host_interleaving_test.cc has the schedules that
// can be repeated.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/unit/collectives/in_host/sleepers.h"

namespace ronde::collectives {
namespace {

constexpr Patience kPatience[] = {Patience::kWatches, Patience::kSleeps, Patience::kMixed};

BoardGeometry geometry_of(std::int32_t ranks, std::int64_t lines) {
  BoardGeometry geometry = small(ranks);
  geometry.slot_bytes = 64 * lines * ranks;
  return geometry;
}

// Many ranks run fewer operations, since the serial sums grow with the ranks.
int operations(std::int32_t ranks) { return ranks > 16 ? 10 : ranks > 4 ? 40 : 120; }

class InHostThreadsTest : public testing::TestWithParam<int> {};

TEST_P(InHostThreadsTest, OnTheHeap) {
  const std::int32_t ranks = GetParam();
  std::uint64_t seed = 500 + static_cast<std::uint64_t>(ranks);
  for (const Patience patience : kPatience) {
    const BoardGeometry geometry = geometry_of(ranks, 1 + static_cast<int>(patience));
    const Scenario scenario =
        ScenarioMaker(ranks, geometry.slot_bytes, ++seed).make(operations(ranks));
    const std::vector<Board> boards = make_boards(geometry);
    std::vector<std::string> problems(boards.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < boards.size(); ++rank) {
      threads.emplace_back([&, rank] {
        RankOfScenario mine(boards[rank], scenario, true);
        problems[rank] = InHostSleeper(mine, patience, seed * 100 + rank).run();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& problem : problems) EXPECT_EQ(problem, "");
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

class InHostProcessesTest : public testing::TestWithParam<int> {};

TEST_P(InHostProcessesTest, OnAMemfd) {
  const std::int32_t ranks = GetParam();
  std::uint64_t seed = 700 + static_cast<std::uint64_t>(ranks);
  for (const Patience patience : kPatience) {
    const BoardGeometry geometry = geometry_of(ranks, 1 + static_cast<int>(patience));
    const Scenario scenario =
        ScenarioMaker(ranks, geometry.slot_bytes, ++seed).make(operations(ranks));
    const std::vector<Board> boards = make_boards(geometry, false);
    run_processes(ranks, [&](std::int32_t rank) {
      RankOfScenario mine(boards[static_cast<std::size_t>(rank)], scenario, true);
      const std::string problem =
          InHostSleeper(mine, patience, seed * 100 + static_cast<std::uint64_t>(rank)).run();
      if (!problem.empty()) ADD_FAILURE() << problem;  // printed by the child
      return problem.empty();
    });
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, InHostThreadsTest, testing::Values(1, 2, 3, 4, 5, 8, 16, 64),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Ranks, InHostProcessesTest, testing::Values(1, 2, 3, 4, 8),
                         testing::PrintToStringParamName());

TEST(InHostCollectives, ABarrierHoldsUntilAllHaveBegunIt) {
  std::vector<Slots> slots;
  for (const Board& board : make_boards(small(3))) slots.emplace_back(board);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Collective>> barriers;
    barriers.reserve(slots.size());
    for (Slots& mine : slots) barriers.push_back(in_host_barrier(mine));
    EXPECT_EQ(barriers[0]->step().value(), StepResult::kIdle);
    EXPECT_EQ(barriers[2]->step().value(), StepResult::kIdle);
    EXPECT_EQ(barriers[0]->step().value(), StepResult::kIdle);
    EXPECT_EQ(barriers[1]->step().value(), StepResult::kDone);
    EXPECT_EQ(barriers[0]->step().value(), StepResult::kDone);
    EXPECT_EQ(barriers[2]->step().value(), StepResult::kDone);
  }
}

// What the slots of a rank hold after one step of an allreduce of `elements` bytes.
struct LaidOut {
  std::uint64_t windows = 0;
  std::byte in_buffer{};
  std::byte beside_counter{};
};

LaidOut begin_allreduce(const BoardGeometry& geometry, std::int64_t elements) {
  Slots slots(make_boards(geometry)[0]);
  std::vector<std::byte> data(static_cast<std::size_t>(elements), std::byte{7});
  const base::TensorView view{data.data(), data.data(), base::Elements(elements), base::DType::kU8};
  const auto collective =
      in_host_allreduce(slots, fusion::FusedView({view}, 1),
                        {.dtype = base::DType::kU8, .op = base::ReduceOp::kSum}, SlotTuning{64});
  EXPECT_TRUE(collective->step().ok());
  return {slots.next_window(), *slots.buffer(0, 0), *slots.inline_bytes(0, 0)};
}

TEST(InHostCollectives, ASmallVectorTakesOneWindowHoweverItIsCut) {
  for (const std::int32_t ranks : {2, 4, 8}) {
    const BoardGeometry geometry = small(ranks);
    // The limit shrinks with the ranks, since every rank reads all contributions.
    const std::int64_t most = std::min(12 << 10, (64 << 10) / ranks);
    EXPECT_EQ(begin_allreduce(geometry, most).windows, 1U);
    EXPECT_EQ(begin_allreduce(geometry, most).in_buffer, std::byte{7});
    EXPECT_EQ(begin_allreduce(geometry, most + 1).windows, most / (64 * ranks) + 1);
  }
}

TEST(InHostCollectives, ATinyVectorTravelsBesideTheCounter) {
  constexpr std::int64_t kMost = Slots::kInlineBytes;
  const LaidOut tiny = begin_allreduce(small(2), kMost);
  EXPECT_EQ(tiny.beside_counter, std::byte{7});
  EXPECT_EQ(tiny.in_buffer, std::byte{0});
  const LaidOut more = begin_allreduce(small(2), kMost + 1);
  EXPECT_EQ(more.beside_counter, std::byte{0});
  EXPECT_EQ(more.in_buffer, std::byte{7});
}

// Slots have the size that they have in a job, and pieces the largest: each collective takes a few
// windows.
TEST(InHostCollectives, WithSlotsOfTheUsualSize) {
  constexpr std::int32_t kRanks = 2;
  BoardGeometry geometry = small(kRanks);
  geometry.slot_bytes = BoardGeometry().slot_bytes;
  const std::vector<Board> boards = make_boards(geometry);
  Scenario scenario;
  ScenarioMaker maker(kRanks, geometry.slot_bytes, 42);
  for (int kind = 0; kind < kKinds; ++kind)
    scenario.push_back(maker.make_one(static_cast<Kind>(kind)));
  std::vector<std::string> problems(kRanks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      RankOfScenario mine(boards[rank], scenario, false);
      problems[rank] = InHostSleeper(mine, Patience::kMixed, rank).run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(problems, std::vector<std::string>(kRanks));
}

}  // namespace
}  // namespace ronde::collectives
