// SPDX-License-Identifier: Apache-2.0
// What only an all-to-all does: it asks for memory when it knows the numbers of rows, which other
// ranks tell it.
#include "collectives/messages/all_to_all.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "test/unit/collectives/job_of_ranks.h"

namespace ronde::collectives {
namespace {

using base::Bytes;
using base::Code;
using base::Result;
using Rows = std::vector<std::int64_t>;

// Begins one of rows of 4 bytes on a rank, which gets no memory for its result.
std::unique_ptr<Collective> start(JobOfRanks& job, int rank, const Rows& rows, int& asked) {
  static const std::vector<std::byte> input(10'000);
  return all_to_all(
      job.transport(rank), job.workspace(rank), {input.data(), rows, Bytes(4)},
      [&asked](std::span<const std::int64_t>) -> Result<std::span<std::byte>> {
        ++asked;
        return base::Status::error(Code::kOutOfMemory, "there is none");
      },
      Bytes(64), 0);
}

TEST(AllToAll, WhatTheAllocationSaysIsReported) {
  for (const int ranks : {1, 2, 5}) {
    JobOfRanks job(ranks);
    int asked = 0;
    std::vector<std::unique_ptr<Collective>> all;
    for (int rank = 0; rank < ranks; ++rank) {
      all.push_back(start(job, rank, Rows(at(ranks), 300), asked));
    }
    for (const Outcome& outcome : job.run(all)) {
      EXPECT_EQ(outcome.status.code(), Code::kOutOfMemory);
      EXPECT_EQ(outcome.status.message(), "there is none");
    }
    EXPECT_EQ(asked, ranks) << "each asks once";
  }
}

TEST(AllToAll, NumbersThatCannotBeAreAnErrorThatNamesTheRank) {
  for (const std::int64_t nonsense : {std::int64_t{-1}, std::int64_t{1} << 62}) {
    JobOfRanks job(2);
    int asked = 0;
    const std::unique_ptr<Collective> collective = start(job, 0, {1, 1}, asked);
    std::int64_t received = 0;
    ASSERT_TRUE(
        job.transport(1).send(0, 0, std::as_bytes(std::span(&nonsense, std::size_t{1}))).ok());
    ASSERT_TRUE(job.transport(1)
                    .receive(0, 0, std::as_writable_bytes(std::span(&received, std::size_t{1})))
                    .ok());
    Result<StepResult> result = StepResult::kIdle;
    for (int step = 0; step < 10 && result.ok(); ++step) result = collective->step();
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::kTransport);
    EXPECT_NE(result.status().message().find("rank 1 announced " + std::to_string(nonsense)),
              std::string::npos)
        << result.status().to_string();
    EXPECT_EQ(asked, 0);
  }
}

}  // namespace
}  // namespace ronde::collectives
