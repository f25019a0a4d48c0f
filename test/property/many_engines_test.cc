// SPDX-License-Identifier: Apache-2.0
// Many engines in one process: far more ranks than cores, windows of many small pieces, and all
// ranks wait for every rank.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

constexpr int kRanks = 64;

// Under a sanitizer, beside other work, their start alone may take a minute.
testing::EngineOptions patient() {
  testing::EngineOptions options;
  options.environment = {"RONDE_START_TIMEOUT_SECONDS=240"};
  return options;
}

// Returns whole numbers whose sums f32 holds exactly.
float value_of(int rank, std::size_t i) {
  return static_cast<float>(rank % 7 + static_cast<int>(i % 100));
}

float sum_of(std::size_t i) {
  float sum = 0;
  for (int rank = 0; rank < kRanks; ++rank) sum += value_of(rank, i);
  return sum;
}

TEST(ManyEngines, AllreduceAndFinish) {
  testing::run_job(kRanks, patient(), [](int rank, Engine& engine) {
    for (int step = 0; step < 2; ++step) {
      // The lengths travel beside the counter, in one window, and in several.
      for (const std::size_t length : {1UL, 6UL, 7UL, 256UL, 257UL, 5000UL, 300000UL}) {
        std::vector<float> data(length);
        for (std::size_t i = 0; i < length; ++i) data[i] = value_of(rank, i);
        const auto work = engine.submit(testing::allreduce_of("x" + std::to_string(length), data));
        ASSERT_TRUE(work.ok()) << work.status().message();
        const base::Status status = engine.wait(**work);
        ASSERT_TRUE(status.ok()) << status.message();
        for (std::size_t i = 0; i < length; i += 1 + length / 1000) {
          ASSERT_EQ(data[i], sum_of(i)) << "rank " << rank << ", " << length << " elements, " << i;
        }
      }
    }
  });
}

TEST(ManyEngines, GatherBroadcastAndMeet) {
  testing::run_job(kRanks, patient(), [](int rank, Engine& engine) {
    const std::vector<float> mine(static_cast<std::size_t>(rank) % 5, static_cast<float>(rank));
    const auto gather = engine.submit(testing::allgather_of("g", mine));
    ASSERT_TRUE(gather.ok());
    ASSERT_TRUE(engine.wait(**gather).ok());
    const auto* gathered = reinterpret_cast<const float*>((*gather)->output.data());
    std::size_t next = 0;
    for (int from = 0; from < kRanks; ++from) {
      for (int i = 0; i < from % 5; ++i) ASSERT_EQ(gathered[next++], static_cast<float>(from));
    }
    ASSERT_EQ((*gather)->output.size(), next * sizeof(float));

    std::vector<float> data(10000, static_cast<float>(rank));
    const auto broadcast = engine.submit(testing::broadcast_of("b", data, 63));
    ASSERT_TRUE(broadcast.ok());
    ASSERT_TRUE(engine.wait(**broadcast).ok());
    ASSERT_EQ(data, std::vector<float>(10000, 63.0F));

    const auto barrier = engine.submit(testing::barrier_of("meet"));
    ASSERT_TRUE(barrier.ok());
    ASSERT_TRUE(engine.wait(**barrier).ok());
  });
}

}  // namespace
}  // namespace ronde::runtime
