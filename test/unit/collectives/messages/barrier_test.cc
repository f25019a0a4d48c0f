// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/barrier.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "test/unit/collectives/job_of_ranks.h"

namespace ronde::collectives {
namespace {

std::vector<std::unique_ptr<Collective>> start_barrier(JobOfRanks& job) {
  std::vector<std::unique_ptr<Collective>> collectives;
  for (int rank = 0; rank < job.size(); ++rank) {
    collectives.push_back(barrier(job.transport(rank), 0));
  }
  return collectives;
}

class BarrierTest : public testing::TestWithParam<int> {};

TEST_P(BarrierTest, ManyInARowInAnyOrder) {
  JobOfRanks job(GetParam(), {.seed = 3, .max_delay = 2, .synchronous_sends = true});
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<std::unique_ptr<Collective>> collectives = start_barrier(job);
    job.expect_done(collectives, seed);
  }
  const auto rounds = std::int64_t{std::bit_width(static_cast<unsigned>(job.size() - 1))};
  for (int rank = 0; rank < job.size(); ++rank) {
    EXPECT_EQ(job.watched(rank).messages(), 10 * rounds);
    EXPECT_EQ(job.watched(rank).bytes_sent(), 0);
  }
}

TEST_P(BarrierTest, NobodyLeavesBeforeTheLastOneCame) {
  for (int late = 0; late < GetParam(); ++late) {
    JobOfRanks job(GetParam());
    std::vector<std::unique_ptr<Collective>> collectives = start_barrier(job);
    std::vector<bool> done(collectives.size(), false);
    for (int round = 0; round < 50; ++round) {
      for (std::size_t rank = 0; rank < collectives.size(); ++rank) {
        if (rank == static_cast<std::size_t>(late)) continue;
        const auto result = collectives[rank]->step();
        ASSERT_TRUE(result.ok());
        ASSERT_NE(*result, StepResult::kDone) << "rank " << rank << " left without " << late;
      }
    }
    job.expect_done(collectives);
  }
}

TEST_P(BarrierTest, ACutLinkIsAnError) {
  if (GetParam() == 1) return;  // no links
  JobOfRanks job(GetParam(), {.cuts = {{0, 1, 0}}});
  std::vector<std::unique_ptr<Collective>> collectives = start_barrier(job);
  const std::vector<Outcome> outcomes = job.run(collectives);
  EXPECT_EQ(outcomes[0].status.code(), base::Code::kTransport);
  EXPECT_EQ(outcomes[1].status.code(), base::Code::kTransport);
}

INSTANTIATE_TEST_SUITE_P(Ranks, BarrierTest, testing::Range(1, 9));

}  // namespace
}  // namespace ronde::collectives
