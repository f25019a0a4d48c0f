// SPDX-License-Identifier: Apache-2.0
// The whole runtime under random schedules: engines in one process, several submitting threads per
// rank, random arrival orders, dropped works, delayed messages. Tests know every result beforehand.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using testing::allreduce_of;
using testing::broadcast_of;
using testing::run_job;

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

// Returns small integers: every sum is exact, so that the order does not matter to the check.
float value_of(int rank, int step, std::size_t tensor, std::size_t i) {
  return static_cast<float>(
      (static_cast<std::size_t>(rank) * 31 + static_cast<std::size_t>(step) + tensor * 7 + i) % 97);
}

// Submits and checks a part of the tensors of one step, in this thread's own order.
class Trainer {
 public:
  Trainer(Engine& engine, int rank, int ranks, const std::vector<Tensor>& tensors,
          std::uint32_t seed)
      : engine_(engine), rank_(rank), ranks_(ranks), tensors_(tensors), random_(seed) {}

  void step(int step, std::size_t first, std::size_t stride) {
    std::vector<std::size_t> order;
    for (std::size_t t = first; t < tensors_.size(); t += stride) order.push_back(t);
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<std::vector<float>> data(tensors_.size());
    std::vector<Engine::WorkPtr> works(tensors_.size());
    for (const std::size_t t : order) {
      for (std::size_t i = 0; i < tensors_[t].length; ++i) {
        data[t].push_back(value_of(rank_, step, t, i));
      }
      if (random_() % 4 == 0) std::this_thread::yield();
      auto work = engine_.submit(allreduce_of(tensors_[t].name, data[t]));
      ASSERT_TRUE(work.ok()) << work.status().message();
      works[t] = std::move(*work);
    }
    std::shuffle(order.begin(), order.end(), random_);
    for (const std::size_t t : order) {
      const base::Status done = engine_.wait(*works[t]);
      ASSERT_TRUE(done.ok()) << done.message();
      check(step, t, data[t]);
    }
  }

 private:
  void check(int step, std::size_t t, const std::vector<float>& data) const {
    for (std::size_t i = 0; i < data.size(); ++i) {
      float expected = 0;
      for (int rank = 0; rank < ranks_; ++rank) expected += value_of(rank, step, t, i);
      ASSERT_EQ(data[i], expected) << tensors_[t].name << "[" << i << "] of step " << step;
    }
  }

  Engine& engine_;
  int rank_;
  int ranks_;
  const std::vector<Tensor>& tensors_;
  std::mt19937 random_;
};

class EngineProperty : public ::testing::TestWithParam<int> {};

TEST_P(EngineProperty, EveryOrderFromEveryThreadGivesTheSums) {
  const int ranks = GetParam();
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    const std::vector<Tensor> tensors = tensors_of(seed, 24);
    testing::EngineOptions options;
    // Limits are small, so that batches are cut, segments are many and the plan is sometimes too
    // small.
    if (seed % 2 == 1) {
      options.environment = {"RONDE_BATCH_BYTES=4096", "RONDE_SEGMENT_BYTES=256",
                             "RONDE_PLAN_CAPACITY=8"};
    }
    run_job(ranks, options, [&](int rank, Engine& engine) {
      std::vector<std::thread> threads;
      constexpr std::size_t kThreads = 3;
      for (std::size_t thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
          const auto own = seed * 100 + static_cast<std::uint32_t>(rank) * 10;
          Trainer trainer(engine, rank, ranks, tensors, own + static_cast<std::uint32_t>(thread));
          for (int step = 0; step < 6; ++step) trainer.step(step, thread, kThreads);
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(engine.statistics().tensors, 24U * 6U);
      EXPECT_LE(engine.statistics().batches, 24U * 6U);
    });
  }
}

TEST_P(EngineProperty, DroppedWorksAreReducedAllTheSame) {
  const int ranks = GetParam();
  const std::vector<Tensor> tensors = tensors_of(7, 16);
  std::vector<std::vector<std::vector<float>>> data(static_cast<std::size_t>(ranks));
  run_job(ranks, [&](int rank, Engine& engine) {
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

TEST_P(EngineProperty, LateMessagesChangeNothing) {
  const int ranks = GetParam();
  const std::vector<Tensor> tensors = tensors_of(3, 12);
  testing::EngineOptions options;
  options.faults.max_delay = 5;
  options.faults.seed = 11;
  options.environment = {"RONDE_ALGORITHM=ring", "RONDE_SEGMENT_BYTES=512"};
  run_job(ranks, options, [&](int rank, Engine& engine) {
    Trainer trainer(engine, rank, ranks, tensors, static_cast<std::uint32_t>(rank));
    for (int step = 0; step < 5; ++step) trainer.step(step, 0, 1);
  });
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
