// SPDX-License-Identifier: Apache-2.0
// ronde_work_finish: waiting, looking where the result lies and releasing in one call.
#include <gtest/gtest.h>

#include <cstdint>
#include <ronde/ronde.hpp>

#include "test/unit/bindings/local_ranks.h"

namespace {

using ronde::testing::on_ranks;

constexpr std::int64_t kLong = 10'000'000'000;

// Returns the request of a tensor that has one f32.
ronde_request request_of(const char* name, const float* input, float* output) {
  static constexpr std::int64_t kShape = 1;
  ronde_request request;
  ronde_request_init(&request);
  request.name = name;
  request.input = input;
  request.output = output;
  request.shape = &kShape;
  request.dimensions = 1;
  return request;
}

TEST(FinishedWorks, AreReleasedWhereTheyAreDoneAndTheResultLiesWhereItIsWanted) {
  on_ranks(2, [](ronde::Engine& engine) {
    const float own = static_cast<float>(engine.rank());
    float all[2] = {-1, -1};
    const ronde_request request = request_of("gathered", &own, all);
    ronde_work* work = nullptr;
    ASSERT_EQ(ronde_allgather_async(engine.get(), &request, &work, nullptr), RONDE_OK);
    ronde_work* const begun = work;
    if (engine.rank() == 0) {
      // The other rank comes when this one has looked.
      EXPECT_EQ(ronde_work_finish(&work, 0, nullptr, nullptr), RONDE_OK);
    }
    engine.barrier_blocking();
    if (work != nullptr) {
      EXPECT_EQ(ronde_work_finish(&work, kLong, &own, nullptr), RONDE_OK);
      EXPECT_EQ(work, begun) << "the result lies elsewhere";
      EXPECT_EQ(ronde_work_finish(&work, kLong, all, nullptr), RONDE_OK);
    }
    EXPECT_EQ(work, nullptr);
    EXPECT_EQ(all[1], 1.0F);
    EXPECT_EQ(ronde_work_finish(nullptr, 0, nullptr, nullptr), RONDE_INVALID_ARGUMENT);
    EXPECT_EQ(ronde_work_finish(&work, 0, nullptr, nullptr), RONDE_INVALID_ARGUMENT);
  });
}

TEST(FinishedWorks, StayWhereTheyHaveFailed) {
  on_ranks(2, [](ronde::Engine& engine) {
    float value = 0;
    ronde_request request = request_of("sum", nullptr, &value);
    request.op = engine.rank() == 0 ? RONDE_SUM : RONDE_MAX;
    ronde_work* work = nullptr;
    ASSERT_EQ(ronde_allreduce_async(engine.get(), &request, &work, nullptr), RONDE_OK);
    EXPECT_EQ(ronde_work_finish(&work, kLong, nullptr, nullptr), RONDE_MISMATCH);
    ASSERT_NE(work, nullptr);
    EXPECT_EQ(ronde_work_wait(work, nullptr), RONDE_MISMATCH);
    ronde_work_release(work);
  });
}

}  // namespace
