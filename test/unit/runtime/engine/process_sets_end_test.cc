// SPDX-License-Identifier: Apache-2.0
// Process sets of engines in one process: errors, closing, and the job's failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"
#include "test/support/eventually.h"
#include "test/support/process_sets.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;
using testing::allgather_of;
using testing::allreduce_of;
using testing::barrier_of;
using testing::broadcast_of;
using testing::EnginePtr;
using testing::filled;
using testing::finish;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::open_engines;
using testing::Ranks;
using testing::run_job;
using testing::set_of;

TEST(ProcessSetsEnd, KeepTheirMismatches) {
  run_job(3, [](int rank, Engine& engine) {
    const EnginePtr set = rank == 0 ? nullptr : set_of(engine, {1, 2}, "tp");
    if (set != nullptr) {
      std::vector<float> data = filled(rank == 1 ? 10 : 11, 1.0F);
      const Status done = finish(*set, allreduce_of("x", data));
      EXPECT_EQ(done.code(), Code::kMismatch);
      EXPECT_THAT(done.message(), HasSubstr("process set 'tp' (its ranks 0-1 are ranks 1-2 of the "
                                            "job): 'x': the ranks disagree: rank 0 submitted"));
      EXPECT_TRUE(finish(*set, barrier_of("b")).ok());
    }
    EXPECT_TRUE(finish(engine, barrier_of("b")).ok());
  });
}

TEST(ProcessSetsEnd, ThatAreClosedFailByNameWhatCannotComplete) {
  std::atomic<bool> submitted{false};
  run_job(2, [&](int rank, Engine& engine) {
    const EnginePtr set = set_of(engine, {0, 1}, "tp");
    std::vector<float> data = filled(10, 1.0F);
    Engine::WorkPtr pending;
    if (rank == 0) {
      pending = set->submit(allreduce_of("never", data)).value();
      submitted = true;
      const Status done = set->wait(*pending);
      EXPECT_EQ(done.code(), Code::kClosed);
      EXPECT_THAT(done.message(), HasSubstr("process set 'tp' of ranks 0-1: 'never' cannot "
                                            "complete: rank 1 closed"));
    }
    while (rank == 1 && !submitted) std::this_thread::yield();
    EXPECT_TRUE(set->close().ok());
    EXPECT_EQ(set->submit(barrier_of("late")).status().code(), Code::kClosed);
    EXPECT_TRUE(finish(engine, barrier_of("b")).ok());
    // What it had is free for the next.
    for (int i = 0; i < 20; ++i) {
      const EnginePtr next = set_of(engine, {0, 1}, "tp");
      ASSERT_TRUE(finish(*next, barrier_of("b")).ok());
      ASSERT_TRUE(next->close().ok());
    }
  });
}

TEST(ProcessSetsEnd, StayWhereTheyAreWhenTheRankThatMadeTheirMemoryIsGone) {
  testing::EngineOptions options;
  options.shape = base::JobShape::one_host(2);
  auto engines = open_engines(2, options);
  std::atomic<bool> gone{false};
  on_ranks(2, [&](int rank) {
    EnginePtr& engine = engines[static_cast<std::size_t>(rank)];
    EnginePtr set = set_of(*engine, {0, 1}, "tp");
    ASSERT_TRUE(finish(*set, barrier_of("b")).ok());
    while (rank == 1 && !gone.load()) std::this_thread::yield();
    const Status closed = set->close();
    EXPECT_TRUE(closed.ok()) << closed.message();
    EXPECT_TRUE(engine->close().ok());
    set.reset();
    engine.reset();
    if (rank == 0) gone.store(true);
  });
}

TEST(ProcessSetsEnd, FailWithTheJob) {
  const auto engines = open_engines(3);
  std::latch open(2);
  on_ranks(3, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const EnginePtr set = rank == 2 ? nullptr : set_of(engine, {0, 1}, "tp");
    if (rank != 2) open.count_down();
    if (set != nullptr) {
      std::vector<float> data = filled(rank == 0 ? 1 : 2, 1.0F);
      const std::string name = "only here: " + std::to_string(rank);
      const Status done = finish(*set, allreduce_of(name, data));
      EXPECT_EQ(done.code(), Code::kPeerFailed) << done.message();
      EXPECT_THAT(done.message(), HasSubstr("rank 2 ended its process"));
    }
    if (rank == 2) {
      open.wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      static_cast<void>(engine.submit(barrier_of("never")));
      engine.close_at_exit();
      return;
    }
    if (set != nullptr) set->close().ignore();
    engine.close().ignore();
  });
}

TEST(ProcessSetsEnd, FailTheJobByTheNumbersOfTheJob) {
  testing::EngineOptions options;
  // Longer than a busy machine may keep a rank from opening its set.
  options.environment = {"RONDE_STALL_WARNING_SECONDS=0.1", "RONDE_STALL_FAILURE_SECONDS=4"};
  const auto engines = open_engines(3, options);
  std::atomic<bool> failed{false};
  on_ranks(3, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const EnginePtr set = rank == 0 ? nullptr : set_of(engine, {1, 2}, "tp");
    if (rank == 1) {
      const Status done = finish(*set, barrier_of("stands"));
      EXPECT_EQ(done.code(), Code::kDeadline) << done.message();
      EXPECT_THAT(done.message(), HasSubstr("ranks 1-2 of the job): 'stands'"));
      EXPECT_EQ(done.rank(), 2);
      failed.store(true);
    }
    while (!failed.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // The failure of another host may still be on its way.
    while (engine.allocate(base::Bytes(1)).ok()) std::this_thread::yield();
    const Status closed = engine.close();
    EXPECT_EQ(closed.code(), Code::kDeadline) << closed.message();
  });
}

struct GivenUp {
  std::vector<std::int32_t> leaders;  // of the job, which has three ranks
  std::string algorithm;
  Ranks ranks;  // of the set
  int by = 0;   // rank of the job
};

void give_up_one(const GivenUp& given, int rank, Engine& engine, std::atomic<bool>& given_up) {
  const bool within = std::ranges::find(given.ranks, rank) != given.ranks.end();
  const EnginePtr set = within ? set_of(engine, given.ranks, "tp") : nullptr;
  const EnginePtr other = within ? set_of(engine, given.ranks, "other") : nullptr;
  if (rank == given.by) {
    const auto work = set->submit(barrier_of("alone"));
    ASSERT_TRUE(work.ok());
    set->settle(**work, base::Nanoseconds(0));
    EXPECT_THAT((*work)->status.message(), HasSubstr("'alone'"));
    given_up.store(true);
  }
  while (!given_up.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (set != nullptr) {
    const Status later = finish(*set, barrier_of("later"));
    EXPECT_EQ(later.code(), Code::kDeadline) << later.message();
    EXPECT_THAT(later.message(), HasSubstr("process set 'tp'"));
    const auto number = std::ranges::find(given.ranks, given.by) - given.ranks.begin();
    EXPECT_THAT(later.message(), HasSubstr("was given up on rank " + std::to_string(number)));
    EXPECT_EQ(later.rank(), given.by);
    EXPECT_FALSE(set->close().ok());
    const EnginePtr again = set_of(engine, given.ranks, "tp");
    std::vector<float> data = filled(9'000, 1.0F);
    EXPECT_TRUE(finish(*again, allreduce_of("again", data)).ok());
    EXPECT_EQ(data[8'999], static_cast<float>(given.ranks.size()));
    EXPECT_TRUE(finish(*other, barrier_of("goes on")).ok());
  }
  EXPECT_TRUE(finish(engine, barrier_of("all")).ok());
}

TEST(ProcessSetsEnd, WhoseWorkIsGivenUpFailAlone) {
  for (const GivenUp& given : std::vector<GivenUp>{{{0, 0, 0}, "auto", {1, 2}, 1},
                                                   {{0, 0, 0}, "ring", {1, 2}, 2},
                                                   {{0, 1, 1}, "auto", {1, 2}, 2},
                                                   {{0, 0, 2}, "auto", {1, 2}, 1},
                                                   {{0, 1, 2}, "ring", {1, 2}, 2},
                                                   {{0, 1, 1}, "auto", {0, 1, 2}, 2},
                                                   {{0, 0, 2}, "auto", {0, 1, 2}, 1}}) {
    testing::EngineOptions options;
    options.shape = base::JobShape::of_leaders(given.leaders).value();
    options.environment = {"RONDE_ALGORITHM=" + given.algorithm};
    std::atomic<bool> given_up{false};
    run_job(3, options,
            [&](int rank, Engine& engine) { give_up_one(given, rank, engine, given_up); });
  }
}

using Ended = std::array<bool, 4>;  // by tensor: it has a result

// Submits what all ranks do, some of which is decided before `gives_up` has ended the set: after so
// long, or else when everything has a result.
Ended end_one(Engine& engine, int rank, bool gives_up,
              std::optional<std::chrono::microseconds> after) {
  const EnginePtr set = set_of(engine, {0, 1, 2}, "tp");
  Ended ended{};
  std::vector<std::vector<float>> data(ended.size(), filled(10'000, static_cast<float>(rank)));
  std::vector<base::Result<Engine::WorkPtr>> works;
  for (std::vector<float>& one : data) {
    works.push_back(set->submit(allreduce_of("x" + std::to_string(works.size()), one)));
  }
  if (gives_up) {
    if (after) std::this_thread::sleep_for(*after);
    for (std::size_t i = 0; i < works.size() && !after; ++i) {
      EXPECT_TRUE(testing::eventually([&] { return works[i].value()->completion.done(); }));
    }
    const auto alone = set->submit(barrier_of("alone")).value();
    set->settle(*alone, base::Nanoseconds(0));
    EXPECT_FALSE(alone->status.ok());
  } else {
    EXPECT_EQ(finish(*set, barrier_of("later")).code(), Code::kDeadline);
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    const Status status = works[i].ok() ? set->wait(**works[i]) : works[i].status();
    ended[i] = status.ok();
    EXPECT_TRUE(status.ok() || status.code() == Code::kDeadline) << status.message();
    if (status.ok()) {
      EXPECT_EQ(data[i].back(), 3.0F);
    }
  }
  set->close().ignore();
  return ended;
}

TEST(ProcessSetsEnd, OverHostsWhoseWorkIsGivenUpEndAtOnePlaceOnAllRanks) {
  constexpr int kRounds = 60;
  testing::EngineOptions options;
  options.shape = base::JobShape::of_leaders(std::vector<std::int32_t>{0, 0, 2}).value();
  options.environment = {"RONDE_BATCH_BYTES=1000"};
  options.faults.max_delay = 40;
  std::array<std::vector<Ended>, 3> ended;  // by rank and round
  run_job(3, options, [&](int rank, Engine& engine) {
    for (int round = 0; round < kRounds; ++round) {
      std::optional<std::chrono::microseconds> after;
      if (round > 0) after.emplace(50 * round);
      ended.at(static_cast<std::size_t>(rank))
          .push_back(end_one(engine, rank, rank == round % 3, after));
    }
    EXPECT_TRUE(finish(engine, barrier_of("all")).ok());
  });
  EXPECT_EQ(ended[0].front(), (Ended{true, true, true, true}));
  EXPECT_EQ(ended[1], ended[0]);
  EXPECT_EQ(ended[2], ended[0]);
}

TEST(ProcessSetsEnd, ForWhichTheTransportHasNoTagsAreRefusedUntilAnotherIsClosed) {
  testing::EngineOptions options;
  options.shape = base::JobShape::of_leaders(std::vector<std::int32_t>{0, 1}).value();
  options.faults.largest_tag = 32'767;  // the least that MPI may have
  run_job(2, options, [](int, Engine& engine) {
    std::vector<EnginePtr> sets;
    for (int i = 0; i < 3; ++i) sets.push_back(set_of(engine, {0, 1}, std::to_string(i)));
    const Status refused = engine.subset({0, 1}, "more").status();
    EXPECT_EQ(refused.code(), Code::kUnsupported);
    EXPECT_THAT(refused.message(),
                HasSubstr("process set 'more' of ranks 0-1 is number 4 of the job, for which the "
                          "transport between the hosts has no tags: its largest is 32767. Close a "
                          "process set first"));
    EXPECT_TRUE(sets.front()->close().ok());
    sets.front() = set_of(engine, {0, 1}, "more");
    for (const EnginePtr& set : sets) {
      std::vector<float> data = filled(9'000, 1.0F);
      EXPECT_TRUE(finish(*set, allreduce_of("x", data)).ok());
      EXPECT_EQ(data[0], 2.0F);
    }
  });
}

TEST(ProcessSetsEnd, ReduceBuffersOfTheJobWhereTheyLie) {
  run_job(3, [](int rank, Engine& engine) {
    const EnginePtr set = set_of(engine, {1, 2}, "tp");
    if (set == nullptr) {
      EXPECT_TRUE(finish(engine, barrier_of("end")).ok());
      return;
    }
    const auto buffer = engine.allocate(base::Bytes(400'000)).value();
    std::span<float> data(reinterpret_cast<float*>(buffer->bytes().data()), 100'000);
    std::fill(data.begin(), data.end(), static_cast<float>(rank));
    std::vector<float> shape(data.size());
    Submission submission = allreduce_of("x", shape);
    submission.views[0].input = buffer->bytes().data();
    submission.views[0].output = buffer->bytes().data();
    ASSERT_TRUE(finish(*set, std::move(submission)).ok());
    EXPECT_EQ(data[99'999], 3.0F);
    const auto own = set->allocate(base::Bytes(64));
    EXPECT_TRUE(own.ok());
    EXPECT_TRUE(finish(engine, barrier_of("end")).ok());
  });
}

TEST(ProcessSetsEnd, OnOneHostGoOnWhenARankOutsideHasClosed) {
  testing::EngineOptions options;
  options.shape = base::JobShape::one_host(3);
  run_job(3, options, [](int rank, Engine& engine) {
    const EnginePtr set = set_of(engine, {1, 2}, "tp");
    EXPECT_TRUE(finish(engine, barrier_of("all")).ok());
    if (rank == 0) return;
    EXPECT_EQ(finish(engine, barrier_of("closed")).code(), Code::kClosed);
    for (int step = 0; step < 10; ++step) {
      std::vector<float> data = filled(100, 1.0F);
      const Status done = finish(*set, allreduce_of("x", data));
      ASSERT_TRUE(done.ok()) << done.message();
    }
    const auto late = engine.subset({1, 2}, "late");
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.status().code(), Code::kClosed) << late.status().message();
  });
}

}  // namespace
}  // namespace ronde::runtime
