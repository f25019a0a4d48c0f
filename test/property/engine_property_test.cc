// SPDX-License-Identifier: Apache-2.0
// The whole runtime under random schedules: engines in one process, several submitting threads per
// rank, random arrival orders, dropped works, delayed messages. Tests know every result beforehand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using testing::allreduce_of;

struct Tensor {
  std::string name;
  std::size_t length;
};

// Returns the tensors of a step, which all ranks share. Sizes go from one element to several
// segments of the ring.
std::vector<Tensor> tensors_of(std::uint32_t seed, int count) {
  std::mt19937 random(seed);
  std::vector<Tensor> tensors;
  for (int i = 0; i < count; ++i) {
    const std::size_t length = std::size_t{1} << (random() % 12);
    tensors.push_back({"layer" + std::to_string(i) + "/weight", length + random() % 7});
  }
  return tensors;
}

class EngineProperty : public ::testing::TestWithParam<int> {};

TEST_P(EngineProperty, DroppedWorksAreReducedAllTheSame) {
  const int ranks = GetParam();
  const std::vector<Tensor> tensors = tensors_of(7, 16);
  std::vector<std::vector<std::vector<float>>> data(static_cast<std::size_t>(ranks));
  testing::run_job(ranks, [&](int rank, Engine& engine) {
    auto& mine = data[static_cast<std::size_t>(rank)];
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<std::uint32_t>(rank)));
    for (const Tensor& tensor : tensors) {
      mine.emplace_back(tensor.length, static_cast<float>(rank + 1));
    }
    for (const std::size_t t : order) {
      // The handle is dropped here; closing the engine finishes or fails the work.
      ASSERT_TRUE(engine.submit(allreduce_of(tensors[t].name, mine[t])).ok());
    }
  });
  const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
  for (const auto& mine : data) {
    for (const auto& tensor : mine) {
      for (const float value : tensor) ASSERT_EQ(value, sum);
    }
  }
}

TEST_P(EngineProperty, ClosingWhileWorkIsPendingEndsEveryWork) {
  const int ranks = GetParam();
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    testing::EngineOptions options;
    options.environment = {"RONDE_SHUTDOWN_TIMEOUT_SECONDS=0.05"};
    const auto engines = testing::open_engines(ranks, options);
    testing::on_ranks(ranks, [&](int rank) {
      Engine& engine = *engines[static_cast<std::size_t>(rank)];
      std::mt19937 random(seed * 16 + static_cast<std::uint32_t>(rank));
      std::vector<std::vector<float>> data(8, std::vector<float>(100, 1.0F));
      std::vector<Engine::WorkPtr> works;
      for (std::size_t t = 0; t < data.size(); ++t) {
        if (random() % 3 == 0) continue;  // ranks submit different tensors
        auto work = engine.submit(allreduce_of("t" + std::to_string(t), data[t]));
        if (work.ok()) works.push_back(std::move(*work));
      }
      engine.close().ignore();
      for (const auto& work : works) {
        ASSERT_TRUE(work->completion.done());
        if (work->status.ok()) continue;
        // On a busy machine 50 ms may pass in the middle of a batch.
        ASSERT_TRUE(work->status.code() == base::Code::kClosed ||
                    work->status.code() == base::Code::kDeadline)
            << work->status.message();
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EngineProperty, ::testing::Values(1, 2, 3, 5, 8));

TEST(EngineFaultTest, ABrokenLinkFailsEveryRankWithTheSameText) {
  testing::EngineOptions options;
  options.faults.cuts = {{0, 1, 3}};
  // On several hosts two ranks that notice a failure at once may each be the first on their host.
  options.shape = base::JobShape::one_host(3);
  options.environment = {"RONDE_ALGORITHM=ring"};
  const auto engines = testing::open_engines(3, options);
  std::vector<std::string> texts(3);
  testing::on_ranks(3, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    std::vector<float> data(100000, 1.0F);
    for (int step = 0; step < 100; ++step) {
      const auto work = engine.submit(allreduce_of("x", data));
      const base::Status status = work.ok() ? engine.wait(**work) : work.status();
      if (status.ok()) continue;
      texts[static_cast<std::size_t>(rank)] = status.message();
      break;
    }
    engine.close().ignore();
  });
  EXPECT_FALSE(texts[0].empty());
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
}

}  // namespace
}  // namespace ronde::runtime
