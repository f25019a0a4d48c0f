// SPDX-License-Identifier: Apache-2.0
// Collectives of several hosts back to back, of all kinds and in random sizes, stepped in one
// thread in a random order: every rank runs as far ahead as the protocol lets it.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "test/unit/collectives/two_level/sequence.h"

namespace ronde::collectives {

using base::JobShape;

namespace {

class TwoLevelSequenceTest : public ::testing::TestWithParam<std::vector<std::int32_t>> {};

TEST_P(TwoLevelSequenceTest, EveryRankGetsWhatItShould) {
  const JobShape shape = shape_of(GetParam());
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    JobOfHosts job(shape, 1 + static_cast<std::int64_t>(seed % 3),
                   {.seed = seed,
                    .max_delay = static_cast<int>(seed % 4),
                    .synchronous_sends = seed % 3 == 0});
    const std::vector<TwoLevelOperation> operations =
        TwoLevelSequenceMaker(shape, seed * 100 + GetParam().size()).make(12);
    std::vector<std::unique_ptr<Collective>> all;
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      all.push_back(std::make_unique<RankOfSequence>(job.of(rank), job.ranks(), operations));
    }
    job.ranks().expect_done(all, seed);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    expect_same_windows(job);
  }
}

// A link between two hosts breaks: their ranks get an error, and nothing hangs or touches memory
// that was freed.
TEST_P(TwoLevelSequenceTest, ACutLinkIsAnError) {
  const JobShape shape = shape_of(GetParam());
  for (std::int64_t after = 0; after < 20; ++after) {
    const int a = shape.leader_of(0);
    const int b = shape.leader_of(1);
    JobOfHosts job(shape, 2, {.seed = 1, .max_delay = 1, .cuts = {{a, b, after}}});
    TwoLevelSequenceMaker maker(shape, static_cast<std::uint64_t>(after));
    const std::vector<TwoLevelOperation> operations = maker.make(60);
    std::vector<std::unique_ptr<Collective>> all;
    for (std::size_t rank = 0; rank < job.size(); ++rank) {
      all.push_back(std::make_unique<RankOfSequence>(job.of(rank), job.ranks(), operations));
    }
    const std::vector<Outcome> outcomes = job.ranks().run(all, static_cast<std::uint64_t>(after));
    int errors = 0;
    for (const Outcome& outcome : outcomes) {
      errors += outcome.status.code() == base::Code::kTransport ? 1 : 0;
    }
    EXPECT_GE(errors, 1) << "after " << after;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TwoLevelSequenceTest,
    ::testing::Values(std::vector<std::int32_t>{0, 1}, std::vector<std::int32_t>{0, 1, 2, 3},
                      std::vector<std::int32_t>{0, 1, 2}, std::vector<std::int32_t>{0, 0, 2, 2},
                      std::vector<std::int32_t>{0, 1, 0, 1}, std::vector<std::int32_t>{0, 0, 2},
                      std::vector<std::int32_t>{0, 0, 0, 3}, std::vector<std::int32_t>{0, 1, 1, 1},
                      std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 0}),
    [](const auto& of) { return name_of_leaders(of.param); });

}  // namespace
}  // namespace ronde::collectives
