// SPDX-License-Identifier: Apache-2.0
// Process sets of engines in one process: opening, and progress of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/engine/prepared.h"
#include "test/support/engines.h"
#include "test/support/eventually.h"
#include "test/support/process_sets.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;
using testing::allreduce_of;
using testing::barrier_of;
using testing::EnginePtr;
using testing::filled;
using testing::finish;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::open_engines;
using testing::Ranks;
using testing::run_job;
using testing::set_of;

TEST(ProcessSets, HaveRanksOfTheirOwnAndReduceAmongThem) {
  run_job(4, [](int rank, Engine& engine) {
    const EnginePtr set = set_of(engine, {3, 0, 2}, "some");
    if (rank == 1) {
      EXPECT_EQ(set, nullptr);
      EXPECT_TRUE(finish(engine, barrier_of("end")).ok());
      return;
    }
    ASSERT_NE(set, nullptr);
    EXPECT_EQ(set->size(), 3);
    EXPECT_EQ(set->rank(), rank == 0 ? 0 : rank - 1);
    EXPECT_EQ(set->ranks_of_job(), (Ranks{0, 2, 3}));
    for (const std::size_t length : {1UL, 100UL, 5'000UL, 300'000UL}) {
      for (int step = 0; step < 5; ++step) {
        std::vector<float> data = filled(length, static_cast<float>(rank + 1));
        const Status done = finish(*set, allreduce_of("x" + std::to_string(length), data));
        ASSERT_TRUE(done.ok()) << done.message();
        ASSERT_EQ(data.front(), 8.0F);
        ASSERT_EQ(data.back(), 8.0F);
      }
    }
    std::vector<float> root = filled(10, static_cast<float>(rank));
    ASSERT_TRUE(finish(*set, testing::broadcast_of("b", root, 2)).ok());
    EXPECT_EQ(root[9], 3.0F);
    EXPECT_TRUE(set->close().ok());
    EXPECT_TRUE(finish(engine, barrier_of("end")).ok());
  });
}

// ---- prepared operations ----

testing::EngineOptions of_one_host(std::int32_t ranks) {
  testing::EngineOptions options;
  options.shape = base::JobShape::one_host(ranks);
  options.environment = {"RONDE_DEADLOCK_GRACE_SECONDS=0.5"};
  return options;
}

// In the arena of a leader that is not the job's; the set may be on one host of several.
void run_prepared_in_a_set(const testing::EngineOptions& options) {
  const auto engines = open_engines(3, options);
  on_ranks(3, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    for (int round = 0; round < 2; ++round) {
      const EnginePtr set = set_of(engine, {1, 2}, "pair");
      std::vector<float> data(10);
      if (rank > 0) {
        auto made = Prepared::make(set, allreduce_of("x", data)).value();
        ASSERT_TRUE(made->has_lines());
        for (int call = 0; call < 200; ++call) {
          if (call % 100 == rank) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          data.assign(10, static_cast<float>(rank + call));
          ASSERT_TRUE(made->run().ok());
          ASSERT_EQ(data[9], static_cast<float>(3 + 2 * call));
        }
        ASSERT_TRUE(set->close().ok());
        EXPECT_EQ(made->run().code(), Code::kClosed);
      }
      ASSERT_TRUE(finish(engine, barrier_of("end")).ok());
    }
    EXPECT_TRUE(engine.close().ok());
  });
}

TEST(ProcessSets, HaveLinesForPreparedOperations) {
  run_prepared_in_a_set(of_one_host(3));
  testing::EngineOptions two_hosts;
  two_hosts.shape = base::JobShape::of_leaders(std::vector<std::int32_t>{0, 1, 1}).value();
  run_prepared_in_a_set(two_hosts);
}

TEST(ProcessSets, InWhoseLinesAJoinOrADeadlineEndsTheOperationByName) {
  const auto engines = open_engines(3, of_one_host(3));
  std::atomic<bool> given_up{false};
  on_ranks(3, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const EnginePtr set = set_of(engine, {1, 2}, "pair");
    if (rank > 0) {
      std::vector<float> data(10);
      Submission timed = allreduce_of("x", data);
      if (rank == 2) timed.deadline = std::chrono::milliseconds(50);
      const auto x = Prepared::make(set, timed).value();
      const auto y = Prepared::make(set, allreduce_of("y", data)).value();
      EXPECT_TRUE(testing::eventually([&] { return rank != 1 || given_up; }));
      const Status late = x->run();
      if (rank == 2) given_up = true;
      EXPECT_THAT(late.message(), HasSubstr("process set 'pair'"));
      EXPECT_EQ(late.code(), Code::kDeadline);
      if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const Status joined = rank == 1 ? y->run() : Status(set->wait(*set->join(true).value()));
      if (rank == 1) {
        EXPECT_THAT(joined.message(), HasSubstr("prepared 'y' has ended: rank 1 has joined"));
        EXPECT_TRUE(set->wait(*set->join(true).value()).ok());
      }
    }
    ASSERT_TRUE(finish(engine, barrier_of("end")).ok());
    EXPECT_TRUE(engine.close().ok());
  });
}

// In the job, with what waits there, and in the set alone, where a third rank computes.
TEST(ProcessSets, InWhoseLinesADeadlockIsSeen) {
  for (const int ranks : {2, 3}) {
    const auto engines = open_engines(ranks, of_one_host(ranks));
    on_ranks(ranks, [&](int rank) {
      Engine& engine = *engines[static_cast<std::size_t>(rank)];
      const EnginePtr set = set_of(engine, {0, 1}, "both");
      if (rank == 2) return std::this_thread::sleep_for(std::chrono::seconds(3));
      std::vector<float> data(10);
      const auto x = Prepared::make(set, allreduce_of("x", data)).value();
      const auto y = Prepared::make(set, allreduce_of("y", data)).value();
      const Status failed = rank == 0    ? x->run()
                            : ranks == 2 ? finish(engine, barrier_of("end"))
                                         : y->run();
      EXPECT_THAT(failed.message(), HasSubstr("deadlock"));
      EXPECT_THAT(failed.message(), HasSubstr("prepared 'x' (process set 'both', call 1)"));
    });
    for (const EnginePtr& engine : engines) EXPECT_FALSE(engine->close().ok());
  }
}

// ---- progress of their own ----

TEST(ProcessSets, ThatStandInABarrierDelayNoOther) {
  std::atomic<bool> late{false};
  run_job(3, [&](int rank, Engine& engine) {
    const EnginePtr first = rank < 2 ? set_of(engine, {0, 1}, "first") : nullptr;
    const EnginePtr second = rank != 1 ? set_of(engine, {0, 2}, "second") : nullptr;
    Engine::WorkPtr stands;
    if (rank == 0) stands = first->submit(barrier_of("stands")).value();
    if (second != nullptr) {
      for (int step = 0; step < 50; ++step) {
        std::vector<float> data = filled(1'000, 1.0F);
        const Status done = finish(*second, allreduce_of("x", data));
        ASSERT_TRUE(done.ok()) << done.message();
        ASSERT_EQ(data[999], 2.0F);
      }
      // The barrier stands still, and what the whole job does goes on beside it, too.
    }
    std::vector<float> all = filled(10, 1.0F);
    ASSERT_TRUE(finish(engine, allreduce_of("all", all)).ok());
    if (rank == 0) {
      EXPECT_FALSE(stands->completion.done());
      late.store(true);
    }
    if (rank == 1) {
      while (!late.load()) std::this_thread::yield();
      ASSERT_TRUE(finish(*first, barrier_of("stands")).ok());
    }
    if (rank == 0) {
      ASSERT_TRUE(first->wait(*stands).ok());
    }
  });
}

TEST(ProcessSets, MayUseTheSameNamesAtOnce) {
  run_job(3, [](int rank, Engine& engine) {
    std::vector<EnginePtr> sets = {set_of(engine, {0, 1, 2}, "all"), nullptr, nullptr};
    if (rank < 2) sets[1] = set_of(engine, {0, 1}, "low");
    if (rank > 0) sets[2] = set_of(engine, {1, 2}, "high");
    const float sums[] = {6.0F, 3.0F, 5.0F};
    for (int step = 0; step < 20; ++step) {
      std::vector<std::vector<float>> data(4, filled(77, static_cast<float>(rank + 1)));
      std::vector<std::pair<Engine*, Engine::WorkPtr>> works;
      for (std::size_t i = 0; i < sets.size(); ++i) {
        if (sets[i] == nullptr) continue;
        works.emplace_back(sets[i].get(), sets[i]->submit(allreduce_of("x", data[i])).value());
      }
      works.emplace_back(&engine, engine.submit(allreduce_of("x", data[3])).value());
      for (const auto& [set, work] : works) ASSERT_TRUE(set->wait(*work).ok());
      for (std::size_t i = 0; i < sets.size(); ++i) {
        if (sets[i] != nullptr) {
          ASSERT_EQ(data[i][76], sums[i]);
        }
      }
      ASSERT_EQ(data[3][0], 6.0F);
    }
  });
}

TEST(ProcessSets, CompleteWhereRanksUseThemInDifferentOrders) {
  run_job(2, [](int rank, Engine& engine) {
    const EnginePtr a = set_of(engine, {0, 1}, "a");
    const EnginePtr b = set_of(engine, {0, 1}, "b");
    for (int step = 0; step < 100; ++step) {
      std::vector<float> one = filled(9'000, 1.0F);
      std::vector<float> two = filled(9'000, 2.0F);
      Engine& first = rank == 0 ? *a : *b;
      Engine& second = rank == 0 ? *b : *a;
      const auto early = first.submit(allreduce_of("x", rank == 0 ? one : two)).value();
      const auto late = second.submit(allreduce_of("x", rank == 0 ? two : one)).value();
      ASSERT_TRUE(second.wait(*late).ok());
      ASSERT_TRUE(first.wait(*early).ok());
      ASSERT_EQ(one[0], 2.0F);
      ASSERT_EQ(two[0], 4.0F);
    }
  });
}

TEST(ProcessSets, AreUsedByThreadsOfTheirOwn) {
  run_job(4, [](int rank, Engine& engine) {
    std::vector<EnginePtr> sets;
    for (int i = 0; i < 4; ++i) sets.push_back(set_of(engine, {0, 1, 2, 3}, std::to_string(i)));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int step = 0; step < 50; ++step) {
          std::vector<float> data = filled(100, static_cast<float>(rank * i));
          ASSERT_TRUE(finish(*sets[static_cast<std::size_t>(i)], allreduce_of("x", data)).ok());
          ASSERT_EQ(data[0], static_cast<float>(6 * i));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// ---- opening ----

TEST(ProcessSets, ThatRanksOpenDifferentlyAreAnErrorThatNamesBoth) {
  run_job(3, [](int rank, Engine& engine) {
    const Ranks ranks = rank == 2 ? Ranks{0, 2} : Ranks{0, 1, 2};
    const auto set = engine.subset(ranks, "tp", "here.cc:" + std::to_string(rank));
    ASSERT_FALSE(set.ok());
    EXPECT_EQ(set.status().code(), Code::kMismatch) << set.status().message();
    EXPECT_THAT(set.status().message(), HasSubstr("'tp': the ranks disagree"));
    EXPECT_THAT(set.status().message(), HasSubstr("ranks 0-2"));
    EXPECT_THAT(set.status().message(), HasSubstr("ranks 0, 2"));
    // All have heard of it, and the name is free.
    const EnginePtr again = set_of(engine, {0, 1, 2}, "tp");
    ASSERT_NE(again, nullptr);
    EXPECT_TRUE(finish(*again, barrier_of("b")).ok());
  });
}

TEST(ProcessSets, OfOneNameWithoutACommonRankAreDifferentSets) {
  run_job(4, [](int rank, Engine& engine) {
    const EnginePtr pair = set_of(engine, rank < 2 ? Ranks{0, 1} : Ranks{2, 3}, "pair");
    std::vector<float> data = filled(10, static_cast<float>(rank));
    ASSERT_TRUE(finish(*pair, allreduce_of("x", data)).ok());
    EXPECT_EQ(data[0], rank < 2 ? 1.0F : 5.0F);
    ASSERT_TRUE(finish(engine, barrier_of("end")).ok());
  });
}

TEST(ProcessSets, OfTheSettingsAreOpenFromTheBeginning) {
  testing::EngineOptions options;
  options.environment = {"RONDE_PROCESS_SETS=tp=2,0;dp=1,2"};
  run_job(3, options, [](int rank, Engine& engine) {
    const EnginePtr tp = set_of(engine, {0, 2}, "tp");
    EXPECT_EQ(tp == nullptr, rank == 1);
    if (tp != nullptr) {
      std::vector<float> data = filled(10, static_cast<float>(rank));
      ASSERT_TRUE(finish(*tp, allreduce_of("x", data)).ok());
      EXPECT_EQ(data[0], 2.0F);
    }
    if (rank == 2) {
      EXPECT_THAT(engine.subset({0, 2}, "dp").status().message(),
                  HasSubstr("RONDE_PROCESS_SETS has it with ranks 1-2"));
    }
    ASSERT_TRUE(finish(engine, barrier_of("end")).ok());
  });
}

TEST(ProcessSets, OfTheSettingsMustMakeSense) {
  const auto job = LocalJob::create(1).value();
  const auto open = [&](const base::Config& config, const base::Clock& clock) {
    return job->join(0, config, clock);
  };
  const auto engine =
      Engine::open(open, {"RONDE_PROCESS_SETS=tp=x"}, std::make_shared<base::SteadyClock>());
  EXPECT_THAT(engine.status().message(), HasSubstr("'tp=x' is not like tp=0,2"));
}

TEST(ProcessSets, RefuseListsThatCannotBe) {
  run_job(2, [](int rank, Engine& engine) {
    EXPECT_THAT(engine.subset({0, 2}, "x").status().message(), HasSubstr("rank 2 is not there"));
    EXPECT_THAT(engine.subset({0, 0}, "x").status().message(), HasSubstr("rank 0 is there twice"));
    EXPECT_THAT(engine.subset({}, "x").status().message(), HasSubstr("no ranks"));
    EXPECT_THAT(engine.subset({rank}, "").status().message(), HasSubstr("1 to 256 bytes"));
    const EnginePtr both = set_of(engine, {0, 1}, "x");
    EXPECT_EQ(engine.subset({0, 1}, "x").status().code(), Code::kDuplicateName);
    EXPECT_TRUE(both->close().ok());
    EXPECT_NE(set_of(engine, {0, 1}, "x"), nullptr);
  });
}

TEST(ProcessSets, ForWhichARankNeverComesAreReportedAndRefused) {
  testing::EngineOptions options;
  // Longer than a busy machine may keep one of the two from coming.
  options.environment = {"RONDE_STALL_WARNING_SECONDS=0.1", "RONDE_STALL_FAILURE_SECONDS=4"};
  std::atomic<int> refused{0};
  ::testing::internal::CaptureStderr();
  run_job(3, options, [&](int rank, Engine& engine) {
    if (rank < 2) {
      const auto set = engine.subset({0, 1, 2}, "tp");
      ASSERT_FALSE(set.ok());
      EXPECT_EQ(set.status().code(), Code::kDeadline) << set.status().message();
      EXPECT_THAT(set.status().message(), HasSubstr("'tp' of ranks 0-2 cannot open: rank 2"));
      EXPECT_EQ(set.status().rank(), 2);
      refused.fetch_add(1);
    }
    while (refused.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("process set 'tp' of ranks 0-2 has waited "));
}

TEST(ProcessSets, WaitNoLongerForARankThanTheCallSays) {
  std::atomic<bool> refused{false};
  run_job(2, [&](int rank, Engine& engine) {
    if (rank == 0) {
      const auto set = engine.subset({0, 1}, "tp", "", std::chrono::milliseconds(50));
      EXPECT_EQ(set.status().code(), Code::kDeadline) << set.status().message();
      refused.store(true);
    }
    while (!refused.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_NE(set_of(engine, {0, 1}, "tp"), nullptr);
  });
}

TEST(ProcessSets, ThatWaitForARankThatClosesAreRefused) {
  run_job(2, [](int rank, Engine& engine) {
    if (rank == 1) return;
    const auto set = engine.subset({0, 1}, "tp");
    ASSERT_FALSE(set.ok());
    EXPECT_EQ(set.status().code(), Code::kClosed) << set.status().message();
    EXPECT_THAT(set.status().message(), HasSubstr("rank 1 has closed its engine"));
  });
}

TEST(ProcessSets, OfSetsAndOfColors) {
  run_job(4, [](int rank, Engine& engine) {
    const EnginePtr three = rank == 0 ? nullptr : set_of(engine, {1, 2, 3}, "three");
    if (three != nullptr) {
      const EnginePtr two = three->subset({0, 2}, "two").value();
      if (rank == 2) {
        EXPECT_EQ(two, nullptr);
      } else {
        EXPECT_EQ(two->ranks_of_job(), (Ranks{1, 3}));
        std::vector<float> data = filled(10, static_cast<float>(rank));
        ASSERT_TRUE(finish(*two, allreduce_of("x", data)).ok());
        EXPECT_EQ(data[0], 4.0F);
      }
    }
    const EnginePtr parity = engine.split(rank % 2, "parity").value();
    EXPECT_EQ(parity->ranks_of_job(), rank % 2 == 0 ? (Ranks{0, 2}) : (Ranks{1, 3}));
    std::vector<float> data = filled(10, static_cast<float>(rank));
    ASSERT_TRUE(finish(*parity, allreduce_of("x", data)).ok());
    EXPECT_EQ(data[0], rank % 2 == 0 ? 2.0F : 4.0F);
    const auto some = engine.split(rank == 0 ? -1 : 0, "some");
    ASSERT_TRUE(some.ok()) << some.status().message();
    EXPECT_EQ(*some == nullptr, rank == 0);
    EXPECT_TRUE(finish(engine, barrier_of("end")).ok());
  });
}

}  // namespace
}  // namespace ronde::runtime
