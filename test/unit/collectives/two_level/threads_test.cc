// SPDX-License-Identifier: Apache-2.0
// Collectives of several hosts back to back, every rank a thread: the boards are on the heap, where
// the thread sanitizer sees every access. (test/property/two_level_sequence_test.cc has the
// schedules that can be repeated.)
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "test/unit/collectives/two_level/sequence.h"

namespace ronde::collectives {

using base::JobShape;

namespace {

// Runs the rank until it has finished; returns the problem, or an empty text.
std::string run_to_the_end(Collective& rank) {
  while (true) {
    const base::Result<StepResult> result = rank.step();
    if (!result.ok()) return result.status().to_string();
    if (*result == StepResult::kDone) return "";
    if (*result == StepResult::kIdle) std::this_thread::yield();
  }
}

class TwoLevelThreadsTest : public testing::TestWithParam<std::vector<std::int32_t>> {};

TEST_P(TwoLevelThreadsTest, EveryRankGetsWhatItShould) {
  const JobShape shape = shape_of(GetParam());
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    JobOfHosts context(shape, 1 + static_cast<std::int64_t>(seed % 3));
    const std::vector<TwoLevelOperation> operations =
        TwoLevelSequenceMaker(shape, seed * 100 + GetParam().size()).make(12);
    std::vector<std::string> problems(context.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < context.size(); ++rank) {
      threads.emplace_back([&, rank] {
        RankOfSequence mine(context.of(rank), context.ranks(), operations);
        problems[rank] = run_to_the_end(mine);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& problem : problems) EXPECT_EQ(problem, "");
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, TwoLevelThreadsTest,
                         testing::Values(std::vector<std::int32_t>{0, 1},
                                         std::vector<std::int32_t>{0, 1, 2, 3},
                                         std::vector<std::int32_t>{0, 0, 2, 2},
                                         std::vector<std::int32_t>{0, 1, 0, 1},
                                         std::vector<std::int32_t>{0, 0, 0, 3},
                                         std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 0}),
                         [](const auto& of) { return name_of_leaders(of.param); });

}  // namespace
}  // namespace ronde::collectives
