// SPDX-License-Identifier: Apache-2.0
// Joins case by case: what is refused, what a join costs afterwards, and how jobs end in which a
// rank has joined.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;
using testing::allreduce_of;
using testing::broadcast_of;
using ::testing::HasSubstr;
using testing::run_job;

class JoinCases : public ::testing::TestWithParam<int> {
 protected:
  static int ranks() { return GetParam(); }
  static Status wait_for(Engine& engine, Submission submission) {
    const auto work = engine.submit(std::move(submission));
    return work.ok() ? engine.wait(**work) : work.status();
  }
  static Status join(Engine& engine, std::int32_t* last = nullptr) {
    const auto work = engine.join(true);
    if (!work.ok()) return work.status();
    const Status ended = engine.wait(**work);
    if (last != nullptr) *last = (*work)->last_joined;
    return ended;
  }
};

// Planned steps before, while and after a rank has joined: each change costs one request a name.
TEST_P(JoinCases, AfterAJoinStepsArePlannedAgain) {
  run_job(ranks(), [](int rank, Engine& engine) {
    constexpr int kNames = 5;
    constexpr int kSteps = 10;
    const auto step = [&] {
      std::vector<std::vector<float>> data(kNames, std::vector<float>(100, 1.0F));
      std::vector<Engine::WorkPtr> works;
      for (int n = 0; n < kNames; ++n) {
        works.push_back(
            engine.submit(allreduce_of("t" + std::to_string(n), data[static_cast<std::size_t>(n)]))
                .value());
      }
      for (const auto& work : works) ASSERT_TRUE(engine.wait(*work).ok());
      EXPECT_TRUE(data[0][0] == static_cast<float>(ranks()) ||
                  data[0][0] == static_cast<float>(ranks() - 1));
    };
    const auto requests = [&] { return engine.statistics().full_requests; };
    for (int i = 0; i < kSteps; ++i) step();
    EXPECT_EQ(requests(), kNames);
    if (rank != 0) {
      for (int i = 0; i < kSteps; ++i) step();
      // Once more, or twice where the join comes in the middle of a step.
      EXPECT_LE(requests(), 3 * kNames);
      const std::uint64_t before = requests();
      for (int i = 0; i < kSteps; ++i) step();
      EXPECT_EQ(requests(), before);
    }
    std::int32_t last = -1;
    ASSERT_TRUE(join(engine, &last).ok());
    EXPECT_EQ(last == 0, ranks() == 1);
    const std::uint64_t before = requests();
    for (int i = 0; i < kSteps; ++i) step();
    EXPECT_EQ(requests(), before + kNames);
  });
}

TEST_P(JoinCases, ABroadcastFromOneThatHasJoinedIsAnErrorAndOthersGoOn) {
  if (ranks() == 1) return;
  run_job(ranks(), [](int rank, Engine& engine) {
    std::vector<float> data{static_cast<float>(rank)};
    if (rank != 1) {
      const Status failed = wait_for(engine, broadcast_of("from", data, 1));
      EXPECT_EQ(failed.code(), Code::kInvalidArgument);
      EXPECT_THAT(failed.message(), HasSubstr("'from': rank 1, its root, has joined"));
      EXPECT_TRUE(wait_for(engine, broadcast_of("other", data, 0)).ok());
      EXPECT_EQ(data[0], 0.0F);
    }
    EXPECT_TRUE(join(engine).ok());
    EXPECT_TRUE(wait_for(engine, broadcast_of("from", data, 1)).ok());
  });
}

TEST_P(JoinCases, OneThatHasJoinedSubmitsNothing) {
  if (ranks() == 1) return;
  std::latch was_refused(1);  // until then its join is in flight, as no other rank joins
  run_job(ranks(), [&was_refused](int rank, Engine& engine) {
    std::vector<float> data{1.0F};
    if (rank == 0) {
      const auto first = engine.join(false).value();
      const Status refused = engine.submit(allreduce_of("t", data)).status();
      EXPECT_EQ(refused.code(), Code::kInvalidArgument);
      EXPECT_THAT(refused.message(), HasSubstr("'t': this rank has joined"));
      EXPECT_EQ(engine.join(false).status().code(), Code::kInvalidArgument);
      was_refused.count_down();
      EXPECT_TRUE(engine.wait(*first).ok());
    } else {
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(wait_for(engine, allreduce_of("t", data)).ok());
      was_refused.wait();
      EXPECT_TRUE(join(engine).ok());
    }
    EXPECT_TRUE(wait_for(engine, allreduce_of("t", data)).ok());
  });
}

TEST_P(JoinCases, AMismatchNamesOnlyThoseThatTakePart) {
  if (ranks() < 3) return;
  run_job(ranks(), [](int rank, Engine& engine) {
    std::vector<float> data(rank == 2 ? 3U : 2U, 1.0F);
    if (rank != 0) {
      const Status failed = wait_for(engine, allreduce_of("t", data));
      EXPECT_EQ(failed.code(), Code::kMismatch);
      EXPECT_THAT(failed.message(), Not(HasSubstr("rank 0")));
      EXPECT_THAT(failed.message(), Not(HasSubstr("ranks 0")));
    }
    EXPECT_TRUE(join(engine).ok());
  });
}

// The others end without having joined: the one that waits hears it.
TEST_P(JoinCases, AJoinFailsWhereARankClosesItsEngine) {
  if (ranks() == 1) return;
  const auto engines = testing::open_engines(ranks());
  testing::on_ranks(ranks(), [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    if (rank == 0) {
      const Status ended = join(engine);
      EXPECT_EQ(ended.code(), Code::kClosed);
      EXPECT_THAT(ended.message(), HasSubstr("has closed its engine"));
    }
    engine.close().ignore();
  });
}

TEST_P(JoinCases, AveragesOverAllWhereTheSettingSaysSo) {
  testing::EngineOptions options;
  options.environment = {"RONDE_JOIN_AVERAGE=all"};
  run_job(ranks(), options, [](int rank, Engine& engine) {
    std::vector<float> data{12.0F};
    if (rank > 0) {
      EXPECT_TRUE(wait_for(engine, allreduce_of("t", data, base::ReduceOp::kAverage)).ok());
      EXPECT_NEAR(data[0], 12.0F * static_cast<float>(ranks() - 1) / static_cast<float>(ranks()),
                  1e-4);
    }
    EXPECT_TRUE(join(engine).ok());
  });
}

// Threads of a rank submit while another one joins: all that was submitted is finished.
TEST_P(JoinCases, OtherThreadsOfTheRankMaySubmitMeanwhile) {
  constexpr std::size_t kRounds = 20;
  std::vector<std::atomic<int>> tried(kRounds);  // by the threads of all ranks
  run_job(ranks(), [&tried](int rank, Engine& engine) {
    for (std::size_t round = 0; round < kRounds; ++round) {
      std::vector<std::vector<float>> data(4, std::vector<float>(10, 1.0F));
      std::vector<std::thread> threads;
      std::vector<int> done(4, 0);
      for (std::size_t t = 0; t < data.size(); ++t) {
        threads.emplace_back([&, t] {
          // Each rank has its own names, which the others do not submit but by chance.
          const auto work = engine.submit(allreduce_of(
              "t" + std::to_string((t + static_cast<std::size_t>(rank)) % 6), data[t]));
          ++tried[round];
          if (!work.ok()) return;
          done[t] = engine.wait(**work).ok() ? 1 : 2;
        });
      }
      // No join ends before all have tried: what is submitted after it waits for the next one.
      while (rank == 0 && tried[round] < 4 * ranks()) std::this_thread::yield();
      EXPECT_TRUE(join(engine).ok());
      for (std::thread& thread : threads) thread.join();
      for (const int one : done) EXPECT_NE(one, 2);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, JoinCases, ::testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace ronde::runtime
