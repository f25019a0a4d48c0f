// SPDX-License-Identifier: Apache-2.0
// How operations are agreed and batched; what they compute is in test/conformance.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "test/support/operations.h"

namespace ronde::runtime {
namespace {

using ronde::testing::bytes_of;
using ronde::testing::group_of_vectors;
using ronde::testing::run_job;
using ronde::testing::submit_and_wait;

constexpr int kRanks = 3;

// Changed splits travel with the data, so the step still sends only an arrival and no full request.
TEST(OperationsTest, AllToAllWithOtherRowsIsStillPlanned) {
  run_job(kRanks, [](int rank, Engine& engine) {
    std::uint64_t full = 0;
    for (int round = 0; round < 5; ++round) {
      const auto rows = static_cast<std::size_t>(round + rank);
      std::vector<std::int32_t> input(rows * kRanks, rank);
      Submission submission;
      submission.name = "x";
      submission.signature.operation = Operation::kAllToAll;
      submission.signature.dtype = base::DType::kI32;
      submission.signature.shape = {std::ssize(input)};
      submission.views[0].input = bytes_of(input);
      submission.splits.assign(kRanks, round + rank);
      ASSERT_TRUE(submit_and_wait(engine, submission).ok());
      if (round == 0) full = engine.statistics().full_requests;
    }
    EXPECT_EQ(engine.statistics().full_requests, full);
  });
}

TEST(OperationsTest, AGroupIsOneBatch) {
  run_job(kRanks, [](int /*rank*/, Engine& engine) {
    for (int step = 0; step < 3; ++step) {
      const std::uint64_t before = engine.statistics().batches;
      std::vector<std::vector<float>> data;
      for (const std::size_t length : {5U, 0U, 1U, 70'000U, 33U}) data.emplace_back(length);
      ASSERT_TRUE(submit_and_wait(engine, group_of_vectors(data, base::ReduceOp::kSum)).ok());
      EXPECT_EQ(engine.statistics().batches, before + 1);
    }
    EXPECT_EQ(engine.statistics().full_requests, 1U);
    EXPECT_EQ(engine.statistics().tensors, 3U * 5U);
  });
}

// On one host and several, small and large: into memory apart, and around this rank's rows.
TEST(OperationsTest, AnAllgatherWritesToMemoryOfTheCaller) {
  for (const std::vector<std::int32_t>& leaders :
       {std::vector<std::int32_t>{0, 0, 0}, {0, 0, 2}, {0, 1, 2}}) {
    testing::EngineOptions options;
    options.shape = base::JobShape::of_leaders(leaders).value();
    run_job(kRanks, options, [&](int rank, Engine& engine) {
      for (const std::size_t rows : {1U, 1000U, 200'000U}) {
        for (const bool around : {false, true}) {
          std::vector<float> all(kRanks * rows, -1);
          std::vector<float> mine(rows, static_cast<float>(rank));
          Submission made = testing::allgather_of("rows", mine);
          float* const place = all.data() + static_cast<std::size_t>(rank) * rows;
          if (around) {
            std::copy(mine.begin(), mine.end(), place);
            made.views[0].input = reinterpret_cast<std::byte*>(place);
          }
          made.views[0].output = bytes_of(all);
          const auto work = engine.submit(std::move(made));
          ASSERT_TRUE(work.ok()) << work.status().message();
          ASSERT_TRUE(engine.wait(**work).ok());
          EXPECT_EQ((*work)->output.data(), bytes_of(all)) << rows << around;
          for (int of = 0; of < kRanks; ++of) {
            const auto first = all.begin() + static_cast<std::ptrdiff_t>(rows) * of;
            EXPECT_EQ(std::vector<float>(first, first + static_cast<std::ptrdiff_t>(rows)),
                      std::vector<float>(rows, static_cast<float>(of)));
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace ronde::runtime
