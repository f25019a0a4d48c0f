// SPDX-License-Identifier: Apache-2.0
// Engines without a background thread: what makes progress in them. Here a local job says that its
// transport is bound to a thread, as MPI is in a program that has started it with
// MPI_THREAD_FUNNELED.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/support/bound_job.h"
#include "test/support/engines.h"
#include "test/support/process_sets.h"

namespace ronde::runtime {
namespace {

using testing::allreduce_of;
using testing::on_ranks;

// Runs body(rank, engine) with two ranks, each in the thread that has opened its engine.
void run_caller_driven(const std::function<void(int, Engine&)>& body, bool fails = false) {
  const auto job = LocalJob::create(2);
  ASSERT_TRUE(job.ok());
  on_ranks(2, [&](int rank) {
    const auto open = [&](const base::Config& config,
                          const base::Clock& clock) -> base::Result<std::unique_ptr<Job>> {
      auto joined = (*job)->join(rank, config, clock);
      RONDE_RETURN_IF_ERROR(joined.status());
      return std::unique_ptr<Job>(std::make_unique<testing::BoundJob>(std::move(*joined)));
    };
    const auto engine = Engine::open(open, {"RONDE_ALGORITHM=ring", "RONDE_LOG_LEVEL=error"},
                                     std::make_shared<base::SteadyClock>());
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    body(rank, **engine);
    const base::Status closed = (*engine)->close();
    EXPECT_EQ(closed.ok(), !fails) << closed.message();
  });
}

// False after twenty seconds, which no machine needs.
bool poll_until_done(Engine& engine, Work& work) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!engine.poll(work)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(CallerDriven, R22AskingWhetherAWorkIsDoneMakesProgress) {
  // They outlive the engines, so that a test that fails ends.
  std::vector<std::vector<float>> smalls(2);
  std::vector<std::vector<float>> larges(2);
  run_caller_driven([&](int rank, Engine& engine) {
    std::vector<float>& small = smalls[static_cast<std::size_t>(rank)];
    std::vector<float>& large = larges[static_cast<std::size_t>(rank)];
    for (int step = 0; step < 20; ++step) {
      small.assign(2, static_cast<float>(rank + 1));
      large.assign(300'000, static_cast<float>(rank + 1));
      const auto first = engine.submit(allreduce_of("small", small));
      const auto second = engine.submit(allreduce_of("large", large));
      ASSERT_TRUE(first.ok() && second.ok());
      ASSERT_TRUE(poll_until_done(engine, **second)) << "rank " << rank << ", step " << step;
      ASSERT_TRUE(poll_until_done(engine, **first));
      EXPECT_TRUE((*first)->status.ok() && (*second)->status.ok());
      EXPECT_EQ(small[1], 3.0F);
      EXPECT_EQ(large[299'999], 3.0F);
    }
  });
}

// Where another rank is late, poll() returns at once all the same.
TEST(CallerDriven, R22AskingDoesNotBlock) {
  std::atomic<bool> asked{false};
  run_caller_driven([&](int rank, Engine& engine) {
    std::vector<float> data(2, 1.0F);
    if (rank == 1) {
      while (!asked.load()) std::this_thread::yield();
    }
    const auto work = engine.submit(allreduce_of("x", data));
    ASSERT_TRUE(work.ok());
    if (rank == 0) {
      for (int i = 0; i < 1000; ++i) EXPECT_FALSE(engine.poll(**work));
      asked.store(true);
    }
    EXPECT_TRUE(poll_until_done(engine, **work));
    EXPECT_TRUE(engine.poll(**work));
  });
}

// MPI may be called by the opener alone.
TEST(CallerDriven, AnotherThreadOnlyAsks) {
  run_caller_driven([](int rank, Engine& engine) {
    std::vector<float> data(2, 1.0F);
    const auto work = engine.submit(allreduce_of("x", data));
    ASSERT_TRUE(work.ok());
    std::thread([&] {
      const auto table = engine.describe();
      EXPECT_TRUE(table.ok() && std::string(*table).ends_with(" in shared memory (control)"));
      for (int i = 0; i < 1000; ++i) EXPECT_FALSE(engine.poll(**work)) << "rank " << rank;
    }).join();
    EXPECT_TRUE(poll_until_done(engine, **work));
  });
}

// The set's coordinator, rank 0, is elsewhere for longer than the set may take to end.
TEST(CallerDriven, WhatIsGivenUpInASetThatDoesNotEndFailsTheJob) {
  std::atomic<bool> given_up{false};
  run_caller_driven(
      [&](int rank, Engine& engine) {
        const auto set = testing::set_of(engine, {0, 1}, "tp");
        if (rank == 1) {
          const auto work = set->submit(testing::barrier_of("alone")).value();
          set->settle(*work, base::Nanoseconds(0));
          EXPECT_EQ(work->status.code(), base::Code::kDeadline) << work->status.message();
          given_up = true;
        }
        while (!given_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const base::Status failed = testing::finish(engine, testing::barrier_of("all"));
        EXPECT_NE(failed.message().find("process set 'tp' of ranks 0-1: 'alone'"),
                  std::string::npos)
            << failed.message();
      },
      true);
}

}  // namespace
}  // namespace ronde::runtime
