// SPDX-License-Identifier: Apache-2.0
// Join by the C ABI and the facade, and a GradientAverager whose ranks have other numbers of
// batches. Through libronde.so, in a job of engines in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include <ronde/ronde.hpp>

#include "test/unit/bindings/local_ranks.h"

namespace {

using ronde::testing::on_ranks;
using ronde::testing::thrown_by;
using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;

TEST(Join, ReturnsTheLastRankOnAll) {
  on_ranks(3, [](ronde::Engine& engine) {
    std::vector<float> data(4, 6.0F);
    for (int step = 0; step < engine.rank(); ++step) {
      data.assign(4, 6.0F);
      engine.allreduce_blocking("t", std::span(data));
      EXPECT_THAT(data, Each(FloatNear(6.0F, 1e-5F)));
    }
    EXPECT_EQ(engine.join(), 2);
    std::vector<std::int32_t> one{1};
    engine.allreduce_blocking("after", std::span(one), ronde::sum);
    EXPECT_EQ(one[0], 3);
  });
}

TEST(Join, HasAWorkInC) {
  on_ranks(2, [](ronde::Engine& engine) {
    ronde_work* work = nullptr;
    ronde_error* error = nullptr;
    EXPECT_EQ(ronde_join_async(engine.get(), nullptr, nullptr), RONDE_INVALID_ARGUMENT);
    ASSERT_EQ(ronde_join_async(engine.get(), &work, &error), RONDE_OK);
    std::int32_t last = -1;
    ASSERT_EQ(ronde_work_wait(work, &error), RONDE_OK);
    EXPECT_EQ(ronde_work_last_joined(work, nullptr, nullptr), RONDE_INVALID_ARGUMENT);
    ASSERT_EQ(ronde_work_last_joined(work, &last, &error), RONDE_OK);
    EXPECT_TRUE(last == 0 || last == 1);
    ronde_work_release(work);

    float value = 1.0F;
    ronde_request request;
    ronde_request_init(&request);
    request.name = "t";
    request.output = &value;
    ASSERT_EQ(ronde_allreduce_async(engine.get(), &request, &work, &error), RONDE_OK);
    ASSERT_EQ(ronde_work_wait(work, &error), RONDE_OK);
    ASSERT_EQ(ronde_work_last_joined(work, &last, &error), RONDE_INVALID_ARGUMENT);
    EXPECT_THAT(ronde_error_message(error), HasSubstr("only a join"));
    ronde_error_release(error);
    ronde_work_release(work);
  });
}

// Rank 1 has twice as many batches; two epochs.
TEST(Join, LetsAnAveragerGoOnWhoseBatchesAreMore) {
  on_ranks(2, [](ronde::Engine& engine) {
    std::vector<float> first(1000);
    std::vector<float> second(3);
    ronde::GradientAverager averager(engine);
    const auto first_id = averager.add("first", std::span(first));
    const auto second_id = averager.add("second", std::span(second));
    for (int epoch = 0; epoch < 2; ++epoch) {
      const int batches = engine.rank() == 0 ? 3 : 6;
      for (int batch = 0; batch < batches; ++batch) {
        const auto mine = static_cast<float>(1 + 4 * engine.rank());
        first.assign(first.size(), mine);
        second.assign(second.size(), mine);
        averager.ready(second_id);
        EXPECT_THAT(thrown_by([&] { averager.join(); }), HasSubstr("in the middle of a step"));
        averager.ready(first_id);
        averager.wait();
        const float expected = batch < 3 ? 3.0F : 5.0F;
        EXPECT_THAT(first, Each(FloatNear(expected, 1e-5F))) << epoch << ", " << batch;
        EXPECT_THAT(second, Each(FloatNear(expected, 1e-5F))) << epoch << ", " << batch;
      }
      EXPECT_EQ(averager.join(), 1);
    }
  });
}

}  // namespace
