// SPDX-License-Identifier: Apache-2.0
// The protocol of the slots under schedules that can be repeated: all ranks of a host are stepped
// in one thread, in a random order that a seed decides. Every rank runs as far ahead as the
// protocol lets it, through collectives of all kinds with tiny slots, and buffers that no rank may
// read any more are overwritten.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "test/unit/collectives/boards.h"
#include "test/unit/collectives/in_host/scenario_rank.h"

namespace ronde::collectives {
namespace {

// Steps the ranks until all have finished; returns the problem, or an empty text.
class Schedule {
 public:
  Schedule(std::vector<std::unique_ptr<RankOfScenario>>& ranks, std::uint64_t seed)
      : ranks_(ranks), random_(seed) {}

  [[nodiscard]] std::string run() {
    while (true) {
      RankOfScenario& chosen = *ranks_[random_() % ranks_.size()];
      // Sometimes one rank goes on for as long as it can, so that the others are far behind; at
      // other times all go in step.
      const std::uint64_t steps = random_() % 8 == 0 ? 1000 : random_() % 4;
      bool moved = false;
      for (std::uint64_t i = 0; i < steps && chosen.step(); ++i) moved = true;
      if (!chosen.problem().empty()) return chosen.problem();
      if (!moved && nobody_moves()) return verdict();
    }
  }

 private:
  // Steps all ranks, since one that was not chosen may be able to go on.
  [[nodiscard]] bool nobody_moves() {
    for (const auto& rank : ranks_) {
      if (rank->step()) return false;
      if (!rank->problem().empty()) return false;
    }
    return true;
  }
  [[nodiscard]] std::string verdict() const {
    std::string stuck;
    for (const auto& rank : ranks_) {
      if (!rank->problem().empty()) return rank->problem();
      if (!rank->finished()) stuck += rank->text() + "; ";
    }
    return stuck.empty() ? "" : "stuck: " + stuck;
  }

  std::vector<std::unique_ptr<RankOfScenario>>& ranks_;
  std::mt19937_64 random_;
};

class InHostInterleavingTest : public ::testing::TestWithParam<int> {};

TEST_P(InHostInterleavingTest, EverySequenceInEveryOrderGivesWhatASerialSumGives) {
  const std::int32_t ranks = GetParam();
  const int scenarios = ranks > 16 ? 3 : ranks > 4 ? 20 : 60;
  for (int round = 0; round < scenarios; ++round) {
    const std::uint64_t seed =
        static_cast<std::uint64_t>(ranks) * 1000 + static_cast<unsigned>(round);
    BoardGeometry geometry = small(ranks);
    geometry.slot_bytes = std::int64_t{64} * ranks * (1 + round % 3);
    const Scenario scenario = ScenarioMaker(ranks, geometry.slot_bytes, seed).make(40);
    const std::vector<Board> boards = make_boards(geometry);
    std::vector<std::unique_ptr<RankOfScenario>> all;
    all.reserve(boards.size());
    for (const Board& board : boards) {
      all.push_back(std::make_unique<RankOfScenario>(board, scenario, true));
    }
    ASSERT_EQ(Schedule(all, seed).run(), "") << "seed " << seed;
    // All ranks must have used the same windows, which the next collective needs.
    for (const auto& rank : all) {
      ASSERT_EQ(rank->slots().next_window(), all[0]->slots().next_window()) << "seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, InHostInterleavingTest, ::testing::Values(1, 2, 3, 4, 5, 8, 16, 64),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace ronde::collectives
