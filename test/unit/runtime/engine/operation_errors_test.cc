// SPDX-License-Identifier: Apache-2.0
// Groups that are refused, and operations about which the ranks disagree: which error each rank
// gets, and that the engines go on working.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <latch>
#include <string>
#include <utility>
#include <vector>

#include "test/support/operations.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;
using ronde::testing::allreduce_of;
using ronde::testing::bytes_of;
using ronde::testing::group_of_vectors;
using ronde::testing::run_job;
using ronde::testing::submit_and_wait;
using ::testing::HasSubstr;
using Rows = std::vector<std::int64_t>;

TEST(OperationErrors, NothingOfARefusedGroupIsSubmitted) {
  std::latch asked(1);  // t1 is in flight until then
  run_job(2, [&asked](int rank, Engine& engine) {
    std::vector<float> busy(10, 1.0F);
    std::vector<std::vector<float>> data(3, std::vector<float>(4, 1.0F));
    if (rank == 0) {
      const auto in_flight = engine.submit(allreduce_of("t1", busy));
      const auto refused = engine.submit(group_of_vectors(data, base::ReduceOp::kSum));
      asked.count_down();
      ASSERT_TRUE(in_flight.ok());
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.status().code(), Code::kDuplicateName);
      EXPECT_THAT(refused.status().message(), HasSubstr("'t1'"));
      // Neither of the others is in flight now.
      const auto t0 = engine.submit(allreduce_of("t0", data[0]));
      const auto t2 = engine.submit(allreduce_of("t2", data[2]));
      ASSERT_TRUE(t0.ok());
      ASSERT_TRUE(t2.ok());
      for (const auto& work : {*in_flight, *t0, *t2}) EXPECT_TRUE(engine.wait(*work).ok());
    } else {
      asked.wait();
      EXPECT_TRUE(submit_and_wait(engine, allreduce_of("t1", busy)).ok());
      EXPECT_TRUE(submit_and_wait(engine, allreduce_of("t0", data[0])).ok());
      EXPECT_TRUE(submit_and_wait(engine, allreduce_of("t2", data[2])).ok());
    }
    EXPECT_EQ(data[0][0], 2.0F);
  });
}

// Numbers that agree add no message to a steady step; one that does not fails the tensor on every
// rank, in that step, and the next steps go on. The rank that differs is of every host in turn.
TEST(OperationErrors, AStepThatOneRankHasLeftOutIsNamedOnEveryRank) {
  constexpr int kRanks = 4;
  run_job(kRanks, [](int rank, Engine& engine) {
    std::vector<float> data(6);
    const auto step = [&](std::int64_t number) {
      data.assign(6, 1.0F);
      Submission submission = allreduce_of("w", data);
      submission.step = StepNumber::agreed(number);
      return submit_and_wait(engine, std::move(submission));
    };
    std::int64_t number = 0;
    for (int other = 0; other < kRanks; ++other) {
      for (int steady = 0; steady < 3; ++steady) {
        const std::uint64_t full = engine.statistics().full_requests;
        ASSERT_TRUE(step(number++).ok());
        EXPECT_EQ(data[5], 4.0F);
        if (steady > 0) {
          EXPECT_EQ(engine.statistics().full_requests, full);
        }
      }
      const Status done = step(rank == other ? number + 1 : number);
      EXPECT_EQ(done.code(), Code::kMismatch) << done.message();
      EXPECT_THAT(done.message(), HasSubstr("'w': the ranks are in different steps"));
      EXPECT_THAT(done.message(), HasSubstr("rank " + std::to_string(other) + " has left one out"));
      number += 2;
    }
  });
}

struct Difference {
  const char* what;
  std::function<Submission(int rank, std::vector<std::vector<float>>& data)> submission;
  const char* expected;
};

class DifferenceTest : public ::testing::TestWithParam<Difference> {};

TEST_P(DifferenceTest, IsNamedOnEveryRankAndTheEngineLivesOn) {
  run_job(3, [](int rank, Engine& engine) {
    for (int round = 0; round < 2; ++round) {
      std::vector<std::vector<float>> data(3, std::vector<float>(6, 1.0F));
      const Status done = submit_and_wait(engine, GetParam().submission(rank, data));
      EXPECT_EQ(done.code(), Code::kMismatch) << done.message();
      EXPECT_THAT(done.message(), HasSubstr(GetParam().expected));
      std::vector<float> fine(8, 1.0F);
      EXPECT_TRUE(submit_and_wait(engine, allreduce_of("fine", fine)).ok());
      EXPECT_EQ(fine[7], 3.0F);
    }
  });
}

Submission rows_of(std::vector<float>& data, Operation operation, const Rows& splits) {
  Submission submission = allreduce_of("rows", data);
  submission.signature.operation = operation;
  submission.splits = splits;
  submission.views[0].input = bytes_of(data);
  submission.views[0].output = bytes_of(data) + 1'000'000;  // never touched: the ranks disagree
  return submission;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DifferenceTest,
    ::testing::Values(
        Difference{
            "Member",
            [](int rank, auto& data) {
              if (rank == 1) data[2].resize(5);
              return group_of_vectors(data, base::ReduceOp::kSum);
            },
            "'group of t0': the ranks disagree about tensor 3 of the group: ranks 0, 2 submitted "
            "'t2' [6] at test.cc:1, rank 1 submitted 't2' [5] at test.cc:1"},
        Difference{"Size",
                   [](int rank, auto& data) {
                     if (rank == 2) data.resize(2);
                     return group_of_vectors(data, base::ReduceOp::kSum);
                   },
                   "rank 2 submitted nothing: its group has 2 tensors"},
        Difference{"GroupOp",
                   [](int rank, auto& data) {
                     return group_of_vectors(
                         data, rank == 0 ? base::ReduceOp::kMax : base::ReduceOp::kSum);
                   },
                   "rank 0 submitted grouped allreduce(max, f32, 3 tensors, 18 elements)"},
        Difference{"Compression",
                   [](int rank, auto& data) {
                     Submission submission = allreduce_of("c", data[0]);
                     if (rank == 1) submission.signature.compression = base::Compression::kBf16;
                     return submission;
                   },
                   "rank 1 submitted allreduce(sum, f32, [6], compression bf16)"},
        Difference{"Splits",
                   [](int rank, auto& data) {
                     return rows_of(data[0], Operation::kReduceScatter,
                                    rank == 2 ? Rows{6, 0, 0} : Rows{2, 2, 2});
                   },
                   "rank 2 submitted reduce_scatter(sum, f32, [6], splits [6, 0, 0])"},
        Difference{"Operation",
                   [](int rank, auto& data) {
                     return rows_of(data[0],
                                    rank == 0 ? Operation::kReduceScatter : Operation::kAllToAll,
                                    Rows{1, 1, 4});
                   },
                   "ranks 1-2 submitted all_to_all(f32, [*])"}),
    [](const auto& kind) { return std::string(kind.param.what); });

}  // namespace
}  // namespace ronde::runtime
