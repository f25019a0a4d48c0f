// SPDX-License-Identifier: Apache-2.0
// Averages by weights through whole engines: what a changing weight costs, and what is refused. The
// bits are those of test/conformance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using testing::allreduce_of;
using ::testing::HasSubstr;
using testing::run_job;

Submission weighted(const std::string& name, std::vector<float>& data, double weight) {
  Submission submission = allreduce_of(name, data, base::ReduceOp::kAverage);
  submission.signature.weighted = true;
  submission.weights = {weight};
  return submission;
}

// The weight of a rank in a step: it differs from step to step, and may be none.
double weight_of(int rank, int step) { return (rank * 7 + step * 3) % 5 + (rank == 0 ? 1 : 0); }

class WeightedAverages : public ::testing::TestWithParam<int> {};

TEST_P(WeightedAverages, ChangingWeightsCostNoFullRequest) {
  const int ranks = GetParam();
  run_job(ranks, [&](int rank, Engine& engine) {
    constexpr int kTensors = 6;
    std::uint64_t full = 0;
    for (int step = 0; step < 30; ++step) {
      std::vector<std::vector<float>> data(kTensors);
      std::vector<Engine::WorkPtr> works;
      for (int t = 0; t < kTensors; ++t) {
        data[static_cast<std::size_t>(t)].assign(static_cast<std::size_t>(1 + t * 1000),
                                                 static_cast<float>(rank + step));
        works.push_back(
            engine
                .submit(weighted("t" + std::to_string(t), data[static_cast<std::size_t>(t)],
                                 weight_of(rank, step)))
                .value());
      }
      double sum = 0.0;
      double weights = 0.0;
      for (int r = 0; r < ranks; ++r) {
        sum += weight_of(r, step) * (r + step);
        weights += weight_of(r, step);
      }
      for (int t = 0; t < kTensors; ++t) {
        ASSERT_TRUE(engine.wait(*works[static_cast<std::size_t>(t)]).ok());
        for (const float value : data[static_cast<std::size_t>(t)]) {
          ASSERT_NEAR(value, sum / weights, 1e-5 * (1 + sum / weights)) << "step " << step;
        }
      }
      if (step == 0) full = engine.statistics().full_requests;
    }
    EXPECT_EQ(full, kTensors);
    EXPECT_EQ(engine.statistics().full_requests, full);
  });
}

// In one batch, where the others come out right: so it is that tensor alone.
TEST_P(WeightedAverages, WeightsThatAddUpToNothingFailTheirTensorOnEveryRank) {
  run_job(GetParam(), [&](int rank, Engine& engine) {
    for (int step = 0; step < 10; ++step) {
      std::vector<float> first{static_cast<float>(rank)};
      std::vector<float> none{1.0F};
      std::vector<float> huge{1.0F};
      std::vector<float> last{3.0F};
      const double most = std::numeric_limits<double>::max();
      std::vector<Engine::WorkPtr> works;
      works.push_back(engine.submit(weighted("first", first, rank == 0 ? 2.0 : 0.0)).value());
      works.push_back(engine.submit(weighted("none", none, 0.0)).value());
      works.push_back(engine.submit(weighted("huge", huge, most)).value());
      works.push_back(engine.submit(weighted("last", last, 5.0)).value());
      EXPECT_TRUE(engine.wait(*works[0]).ok());
      EXPECT_EQ(first[0], 0.0F);
      const base::Status nothing = engine.wait(*works[1]);
      EXPECT_EQ(nothing.code(), base::Code::kInvalidArgument);
      EXPECT_THAT(nothing.message(), HasSubstr("'none': the weights of all ranks add up to 0"));
      const base::Status much = engine.wait(*works[2]);
      EXPECT_EQ(much.ok(), GetParam() == 1) << much.message();
      EXPECT_TRUE(engine.wait(*works[3]).ok());
      EXPECT_NEAR(last[0], 3.0F, 1e-6);
    }
  });
}

TEST_P(WeightedAverages, AWeightThatIsNoneIsRefusedAndSubmitsNothing) {
  run_job(GetParam(), [&](int /*rank*/, Engine& engine) {
    std::vector<float> data{1.0F};
    for (const double weight : {-1.0, std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN()}) {
      const auto refused = engine.submit(weighted("t", data, weight));
      EXPECT_EQ(refused.status().code(), base::Code::kInvalidArgument);
      EXPECT_THAT(refused.status().message(), HasSubstr("'t': its weight is "));
    }
    Submission sum = weighted("t", data, 1.0);
    sum.signature.op = base::ReduceOp::kSum;
    EXPECT_THAT(engine.submit(std::move(sum)).status().message(), HasSubstr("sum has no weights"));
    Submission integers = weighted("t", data, 1.0);
    integers.signature.dtype = base::DType::kI32;
    EXPECT_THAT(engine.submit(std::move(integers)).status().message(),
                HasSubstr("no average by weights of i32"));
    const auto work = engine.submit(weighted("t", data, 1.0)).value();
    EXPECT_TRUE(engine.wait(*work).ok());
  });
}

TEST_P(WeightedAverages, ARankWithoutAWeightDisagrees) {
  if (GetParam() == 1) return;
  run_job(GetParam(), [&](int rank, Engine& engine) {
    std::vector<float> data{1.0F};
    auto submission =
        rank == 1 ? allreduce_of("t", data, base::ReduceOp::kAverage) : weighted("t", data, 1.0);
    const auto work = engine.submit(std::move(submission)).value();
    const base::Status failed = engine.wait(*work);
    EXPECT_EQ(failed.code(), base::Code::kMismatch);
    EXPECT_THAT(failed.message(), HasSubstr("average by weights"));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, WeightedAverages, ::testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace ronde::runtime
