// SPDX-License-Identifier: Apache-2.0
// Process sets of engines in one process: opening, progress of their own, errors, closing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
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
using testing::allgather_of;
using testing::allreduce_of;
using testing::barrier_of;
using testing::broadcast_of;
using testing::EnginePtr;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::open_engines;
using testing::run_job;

using Ranks = std::vector<std::int32_t>;

EnginePtr set_of(Engine& engine, const Ranks& ranks, const std::string& name) {
  auto set = engine.subset(ranks, name);
  EXPECT_TRUE(set.ok()) << set.status().message();
  return set.ok() ? *set : nullptr;
}

Status finish(Engine& engine, Submission submission) {
  const auto work = engine.submit(std::move(submission));
  return work.ok() ? engine.wait(**work) : work.status();
}

std::vector<float> filled(std::size_t length, float value) {
  return std::vector<float>(length, value);
}

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
    ASSERT_TRUE(finish(*set, broadcast_of("b", root, 2)).ok());
    EXPECT_EQ(root[9], 3.0F);
    EXPECT_TRUE(set->close().ok());
    EXPECT_TRUE(finish(engine, barrier_of("end")).ok());
  });
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
  });
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
  options.environment = {"RONDE_STALL_WARNING_SECONDS=0.1", "RONDE_STALL_FAILURE_SECONDS=0.4"};
  ::testing::internal::CaptureStderr();
  run_job(3, options, [](int rank, Engine& engine) {
    if (rank < 2) {
      const auto set = engine.subset({0, 1, 2}, "tp");
      ASSERT_FALSE(set.ok());
      EXPECT_EQ(set.status().code(), Code::kDeadline) << set.status().message();
      EXPECT_THAT(set.status().message(), HasSubstr("'tp' of ranks 0-2 cannot open: rank 2"));
      EXPECT_EQ(set.status().rank(), 2);
    }
    std::vector<float> data = filled(10, 1.0F);
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(600));
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("process set 'tp' of ranks 0-2 has waited 0.1"));
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

// ---- errors and the end ----

TEST(ProcessSets, KeepTheirMismatches) {
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

TEST(ProcessSets, ThatAreClosedFailByNameWhatCannotComplete) {
  run_job(2, [](int rank, Engine& engine) {
    const EnginePtr set = set_of(engine, {0, 1}, "tp");
    std::vector<float> data = filled(10, 1.0F);
    Engine::WorkPtr pending;
    if (rank == 0) {
      pending = set->submit(allreduce_of("never", data)).value();
      const Status done = set->wait(*pending);
      EXPECT_EQ(done.code(), Code::kClosed);
      EXPECT_THAT(done.message(), HasSubstr("process set 'tp' of ranks 0-1: 'never' cannot "
                                            "complete: rank 1 closed"));
    }
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

TEST(ProcessSets, StayWhereTheyAreWhenTheRankThatMadeTheirMemoryIsGone) {
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

TEST(ProcessSets, FailWithTheJob) {
  const auto engines = open_engines(3);
  on_ranks(3, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const EnginePtr set = rank == 2 ? nullptr : set_of(engine, {0, 1}, "tp");
    if (set != nullptr) {
      std::vector<float> data = filled(rank == 0 ? 1 : 2, 1.0F);
      const std::string name = "only here: " + std::to_string(rank);
      const Status done = finish(*set, allreduce_of(name, data));
      EXPECT_EQ(done.code(), Code::kPeerFailed) << done.message();
      EXPECT_THAT(done.message(), HasSubstr("rank 2 ended its process"));
    }
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      static_cast<void>(engine.submit(barrier_of("never")));
      engine.close_at_exit();
      return;
    }
    if (set != nullptr) set->close().ignore();
    engine.close().ignore();
  });
}

TEST(ProcessSets, FailTheJobByTheNumbersOfTheJob) {
  testing::EngineOptions options;
  options.environment = {"RONDE_STALL_WARNING_SECONDS=0.1", "RONDE_STALL_FAILURE_SECONDS=0.3"};
  const auto engines = open_engines(3, options);
  on_ranks(3, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const EnginePtr set = rank == 0 ? nullptr : set_of(engine, {1, 2}, "tp");
    if (rank == 1) {
      const Status done = finish(*set, barrier_of("stands"));
      EXPECT_EQ(done.code(), Code::kDeadline) << done.message();
      EXPECT_THAT(done.message(), HasSubstr("ranks 1-2 of the job): 'stands'"));
      EXPECT_EQ(done.rank(), 2);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
    }
    const Status closed = engine.close();
    EXPECT_EQ(closed.code(), Code::kDeadline) << closed.message();
  });
}

TEST(ProcessSets, ReduceBuffersOfTheJobWhereTheyLie) {
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

TEST(ProcessSets, OnOneHostGoOnWhenARankOutsideHasClosed) {
  testing::EngineOptions options;
  options.shape = base::JobShape::one_host(3);
  run_job(3, options, [](int rank, Engine& engine) {
    const EnginePtr set = set_of(engine, {1, 2}, "tp");
    EXPECT_TRUE(finish(engine, barrier_of("all")).ok());
    if (rank == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
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
