// SPDX-License-Identifier: Apache-2.0
// Calls by name that meet in lines of their own accord: the bits and the errors of ordinary ones,
// no batch once they are usual, and every way back to the coordinator.
#include "runtime/lines/quick_calls.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/engines.h"
#include "test/support/operations.h"
#include "test/unit/runtime/lines/quick_kit.h"

namespace ronde::runtime {
namespace {

using base::ReduceOp;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(QuickCalls, NeedNoBatchOnceTheyAreUsual) {
  for (const int ranks : {1, 2, 3, 5}) {
    with_quick(ranks, [&](int rank, Engine& engine) {
      // The first call is a full request and a batch as well, but of a tensor that is not planned.
      const auto call = [&] { sum_once(engine, rank, ranks, "loss", 2); };
      for (int i = 0; i < 5; ++i) call();
      EXPECT_EQ(batches_of(engine,
                           [&] {
                             for (int i = 0; i < 1000; ++i) call();
                           }),
                0U);
      EXPECT_TRUE(batches_of(engine, [&] { sum_once(engine, rank, ranks, "other", 1); }) > 0);
    });
  }
}

TEST(QuickCalls, HaveTheBitsOfOrdinaryOnes) {
  for (const std::size_t size : {0U, 1U, 13U, 1024U, 1025U}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin}) {
      with_quick(3, [&](int rank, Engine& engine) {
        std::vector<float> given(size);
        for (std::size_t i = 0; i < size; ++i) {
          given[i] = 1.0F / static_cast<float>(3 + rank * 7) + static_cast<float>(i) * 0.1F;
        }
        std::vector<float> first = given;
        expect_done(engine.run(testing::allreduce_of("x", first, op)));
        for (int i = 0; i < 9; ++i) {
          std::vector<float> data = given;
          expect_done(engine.run(testing::allreduce_of("x", data, op)));
          EXPECT_EQ(data, first) << size;
        }
      });
    }
  }
}

// Where an algorithm is named each rank counts as a host, and sums have other bits.
TEST(QuickCalls, KeepTheBitsOfTheAlgorithmThatIsNamed) {
  testing::EngineOptions options;
  options.environment = {"RONDE_LINES_AFTER=2", "RONDE_ALGORITHM=ring"};
  options.shape = base::JobShape::one_host(3);
  testing::run_job(3, options, [](int rank, Engine& engine) {
    std::vector<float> given(100);
    for (std::size_t i = 0; i < given.size(); ++i) {
      given[i] = 1.0F / static_cast<float>(3 + rank * 7 + static_cast<int>(i));
    }
    std::vector<float> first = given;
    expect_done(engine.run(testing::allreduce_of("x", first)));
    for (int i = 0; i < 9; ++i) {
      std::vector<float> data = given;
      expect_done(engine.run(testing::allreduce_of("x", data)));
      EXPECT_EQ(data, first);
    }
  });
}

TEST(QuickCalls, BroadcastIntoOtherMemoryAndMeet) {
  with_quick(3, [](int rank, Engine& engine) {
    for (int i = 0; i < 30; ++i) {
      std::vector<float> given{static_cast<float>(100 * rank + i)};
      std::vector<float> got{-1};
      Submission made = testing::broadcast_of("weights", given, 1);
      made.views.front().output = reinterpret_cast<std::byte*>(got.data());
      expect_done(engine.run(std::move(made)));
      EXPECT_EQ(got.front(), static_cast<float>(100 + i));
      expect_done(engine.run(testing::barrier_of("step")));
    }
    EXPECT_LT(engine.statistics().batches, 20U);
  });
}

// A call that one rank does not make as usual takes all to the coordinator, until the name has
// been a batch by itself 64 times as often.
TEST(QuickCalls, GoTheOrdinaryWayAgainWhereARankDiffers) {
  with_quick(2, [](int rank, Engine& engine) {
    const auto call = [&] { sum_once(engine, rank, 2, "loss", 2); };
    for (int i = 0; i < 10; ++i) call();
    EXPECT_EQ(batches_of(engine, call), 0U);
    std::vector<float> data(3, static_cast<float>(rank));
    Submission made = testing::allreduce_of("loss", data);
    if (rank == 1) {
      auto work = engine.submit(std::move(made));
      ASSERT_TRUE(work.ok()) << work.status().message();
      expect_done(engine.wait(**work));
    } else {
      expect_done(engine.run(std::move(made)));
    }
    EXPECT_EQ(data.back(), 1.0F);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(batches_of(engine, call), 1U) << i;
    for (int i = 0; i < 100; ++i) call();
    EXPECT_EQ(batches_of(engine, call), 0U);
  });
}

TEST(QuickCalls, WithADeadlineOrAnotherShapeAreAgreedOn) {
  with_quick(3, [](int rank, Engine& engine) {
    for (int i = 0; i < 10; ++i) sum_once(engine, rank, 3, "loss", 2);
    std::vector<float> data(rank == 2 ? 4 : 3, 1.0F);
    const base::Status differs = engine.run(testing::allreduce_of("loss", data));
    EXPECT_EQ(differs.code(), base::Code::kMismatch);
    EXPECT_THAT(differs.message(), HasSubstr("'loss'"));
    EXPECT_EQ(data.front(), 1.0F);
    sum_once(engine, rank, 3, "loss", 3, 7);  // all have the other shape now
    for (int i = 0; i < 10; ++i) sum_once(engine, rank, 3, "late", 2);
    std::vector<float> ones(3, 1.0F);
    Submission made = testing::allreduce_of("late", ones);
    if (rank == 0) made.deadline = std::chrono::seconds(20);
    expect_done(engine.run(std::move(made)));
    EXPECT_EQ(ones.front(), 3.0F);
  });
}

// Two threads call the same name: the second is told so, since the first is in the line.
TEST(QuickCalls, OfOneNameAreOneAtATimeOnARank) {
  std::atomic<int> duplicates{0};
  with_quick(2, [&](int rank, Engine& engine) {
    for (int i = 0; i < 10; ++i) sum_once(engine, rank, 2, "loss", 2);
    const auto call = [&] {
      std::vector<float> data(3, 1.0F);
      const base::Status done = engine.run(testing::allreduce_of("loss", data));
      if (!done.ok()) {
        EXPECT_EQ(done.code(), base::Code::kDuplicateName) << done.message();
        EXPECT_THAT(done.message(), HasSubstr("'loss' is already in flight"));
        ++duplicates;
      }
      EXPECT_EQ(data.front(), done.ok() ? 2.0F : 1.0F);
    };
    if (rank == 1) {
      while (duplicates == 0) std::this_thread::sleep_for(milliseconds(1));
      call();
      return;
    }
    std::thread other(call);
    call();
    other.join();
  });
  EXPECT_EQ(duplicates, 1);
}

// A group with the name of a call that is in the line is refused, as is the call where the group
// has come first.
TEST(QuickCalls, AreNoMembersOfAGroupMeanwhile) {
  std::atomic<int> group_goes{-1};
  with_quick(2, [&](int rank, Engine& engine) {
    for (int i = 0; i < 10; ++i) sum_once(engine, rank, 2, "t0", 2);
    std::vector<std::vector<float>> data(2, std::vector<float>(3, 1.0F));
    const auto call = [&](bool group) {
      std::vector<float> alone(3, 1.0F);
      return group
                 ? testing::submit_and_wait(engine, testing::group_of_vectors(data, ReduceOp::kSum))
                 : engine.run(testing::allreduce_of("t0", alone));
    };
    if (rank == 1) {
      while (group_goes < 0) std::this_thread::sleep_for(milliseconds(1));
      return expect_done(call(group_goes == 1));
    }
    const auto call_beside = [&](bool group) {
      const base::Status done = call(group);
      if (done.ok()) return;
      EXPECT_EQ(done.code(), base::Code::kDuplicateName) << done.message();
      EXPECT_THAT(done.message(), HasSubstr("'t0' is already in flight"));
      EXPECT_EQ(group_goes.exchange(group ? 0 : 1), -1);
    };
    std::thread other(call_beside, false);
    std::this_thread::sleep_for(milliseconds(20));
    call_beside(true);
    other.join();
  });
  EXPECT_GE(group_goes, 0);
}

// More names than there are lines, each with a thread of its own on each rank, in which a rank now
// and then calls in another way than the others, or joins.
TEST(QuickCalls, AreRightInRandomPrograms) {
  constexpr int kNames = 6;
  constexpr int kManyNames = QuickCalls::kLines + 3;
  with_quick(3, [](int rank, Engine& engine) {
    for (int name = 0; name < kManyNames; ++name) {
      for (int i = 0; i < 4; ++i) {
        sum_once(engine, rank, 3, "many " + std::to_string(name), static_cast<float>(name));
      }
    }
  });
  for (int seed = 0; seed < 12; ++seed) {
    with_quick(
        2 + seed % 3,
        [&](int rank, Engine& engine) {
          const int ranks = 2 + seed % 3;
          for (int round = 0; round < 3; ++round) {
            std::vector<std::thread> threads;
            for (int name = 0; name < kNames; ++name) {
              threads.emplace_back([&, name] {
                std::mt19937 random(static_cast<unsigned>(seed * 1000 + rank * 100 + name));
                for (int call = 0; call < 150; ++call) {
                  const auto factor = static_cast<float>(1 + call % 7);
                  std::vector<float> data(2, factor * static_cast<float>(rank + 1));
                  Submission made = testing::allreduce_of("name " + std::to_string(name), data);
                  const bool odd = name > 0 && random() % (1U << (3 * name)) == 0;
                  if (odd && random() % 2 == 0) {
                    const auto work = engine.submit(std::move(made));
                    ASSERT_TRUE(work.ok()) << work.status().message();
                    expect_done(engine.wait(**work));
                  } else {
                    if (odd) made.deadline = std::chrono::seconds(60);
                    expect_done(engine.run(std::move(made)));
                  }
                  EXPECT_EQ(data.front(), ranks_sum(ranks, factor)) << name << " " << call;
                }
              });
            }
            for (std::thread& thread : threads) thread.join();
            const auto joined = engine.join(true);
            ASSERT_TRUE(joined.ok()) << joined.status().message();
            expect_done(engine.wait(**joined));
          }
        },
        seed % 2 == 0 ? "1" : "3");
  }
}

}  // namespace
}  // namespace ronde::runtime
