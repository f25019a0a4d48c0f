// SPDX-License-Identifier: Apache-2.0
// Which threads are woken: a loop of blocking calls must not wake the background thread, but work
// that a waiter leaves behind must.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

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
        last.input = reinterpret_cast<const std::byte*>(third.data());
        last.output = reinterpret_cast<std::byte*>(third.data());
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
