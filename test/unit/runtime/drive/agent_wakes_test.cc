// SPDX-License-Identifier: Apache-2.0
// Which threads are woken: a loop of blocking calls must not wake the background thread, but work
// that a waiter leaves behind must.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "collectives/board/doorbell.h"
#include "runtime/job/local_job.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using testing::allreduce_of;
using testing::run_job;

TEST(AgentWakesTest, ALoopOfBlockingCallsLeavesTheBackgroundThreadAsleep) {
  run_job(1, [](int, Engine& engine) {
    std::vector<float> data(2, 1.0F);
    const auto call = [&] {
      Submission submission = allreduce_of("x", data);
      submission.will_wait = true;
      const auto work = engine.submit(std::move(submission));
      ASSERT_TRUE(work.ok()) << work.status().message();
      ASSERT_TRUE(engine.wait(**work).ok());
    };
    call();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until it has gone to sleep
    const std::uint64_t before = engine.statistics().background_wakes;
    for (int i = 0; i < 1000; ++i) call();
    EXPECT_LE(engine.statistics().background_wakes - before, 2U);
  });
}

// Submits as a program does that calls engine.allreduce(...).wait(), which promises nothing.
Engine::WorkPtr submit_without_promise(Engine& engine, std::vector<float>& data) {
  return engine.submit(allreduce_of("x", data)).value();
}

// Whether the work is done without a thread of the program that helps, and before any timer of the
// agent.
bool is_finished_behind(const Engine::WorkPtr& work) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!work->completion.done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

// On a clock that stands still every wait is at once. The rings of the bell are counted, since how
// often the background thread wakes up by itself depends on the machine.
TEST(AgentWakesTest, WhoWaitsAtOnceRingsNoBellOnceThatIsLearnt) {
  const auto job = LocalJob::create(1).value();
  collectives::Doorbell bell;
  const auto open = [&](const base::Config& config, const base::Clock& clock) {
    auto joined = job->join(0, config, clock);
    if (joined.ok()) bell = (*joined)->board().doorbell(0);
    return joined;
  };
  const auto engine = Engine::open(open, {}, std::make_shared<base::ManualClock>()).value();
  std::vector<float> data(2, 1.0F);
  const auto rings_of = [&](int calls) {
    const std::uint64_t before = bell.rings();
    for (int i = 0; i < calls; ++i) {
      EXPECT_TRUE(engine->wait(*submit_without_promise(*engine, data)).ok());
    }
    return bell.rings() - before;
  };
  EXPECT_GE(rings_of(12), 8U);  // the guess needs as many
  EXPECT_EQ(rings_of(100), 0U);
  // A submitter that asks instead of waiting is another one.
  const Engine::WorkPtr asked = submit_without_promise(*engine, data);
  while (!engine->poll(*asked)) std::this_thread::yield();
  EXPECT_EQ(rings_of(5), 5U);
  EXPECT_TRUE(engine->close().ok());
}

// The guess that they wait at once is wrong then, for some ranks or for all.
TEST(AgentWakesTest, WhoDoesNotWaitAfterAllIsNotForgotten) {
  for (const int ranks : {1, 2}) {
    for (const int who_waits : {-1, 0, 1}) {
      run_job(ranks, [&](int rank, Engine& engine) {
        std::vector<float> data(2, 1.0F);
        for (int round = 0; round < 5; ++round) {
          for (int i = 0; i < 500; ++i) {
            ASSERT_TRUE(engine.wait(*submit_without_promise(engine, data)).ok());
          }
          const Engine::WorkPtr left = submit_without_promise(engine, data);
          if (rank == who_waits) {
            ASSERT_TRUE(engine.wait(*left).ok());
          }
          EXPECT_TRUE(is_finished_behind(left)) << "rank " << rank << ", round " << round;
        }
      });
    }
  }
}

// Another submission follows, which is no habit of anybody and rings as ever.
TEST(AgentWakesTest, TheNextSubmissionFindsNoSilencedBell) {
  run_job(2, [](int, Engine& engine) {
    std::vector<float> data(2, 1.0F);
    std::vector<float> more(3, 1.0F);
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(engine.wait(*submit_without_promise(engine, data)).ok());
      }
      const Engine::WorkPtr left = submit_without_promise(engine, data);
      const Engine::WorkPtr other = engine.submit(allreduce_of("other", more)).value();
      EXPECT_TRUE(is_finished_behind(other));
      EXPECT_TRUE(is_finished_behind(left));
    }
  });
}

// Every rank waits for the first of three only; the second is large enough to be in flight then,
// and the third is held back until it has ended.
TEST(AgentWakesTest, WhatAWaiterLeavesBehindIsFinishedAllTheSame) {
  for (const int ranks : {1, 2, 3}) {
    run_job(ranks, [&](int rank, Engine& engine) {
      std::vector<float> first(1000, 1.0F);
      std::vector<float> second(3'000'000, 1.0F);
      std::vector<double> third(3, 1.0);
      for (int round = 0; round < 20; ++round) {
        Submission last = allreduce_of("third", first);
        last.signature.dtype = base::DType::kF64;
        last.signature.shape = {3};
        last.views[0].input = reinterpret_cast<const std::byte*>(third.data());
        last.views[0].output = reinterpret_cast<std::byte*>(third.data());
        const auto a = engine.submit(allreduce_of("first", first, base::ReduceOp::kMax));
        const auto b = engine.submit(allreduce_of("second", second, base::ReduceOp::kMin));
        const auto c = engine.submit(std::move(last));
        ASSERT_TRUE(a.ok() && b.ok() && c.ok()) << "rank " << rank;
        ASSERT_TRUE(engine.wait(**a).ok());
        // Only the background thread drives now.
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!(*b)->completion.done() || !(*c)->completion.done()) {
          ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "round " << round;
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
      }
    });
  }
}

}  // namespace
}  // namespace ronde::runtime
