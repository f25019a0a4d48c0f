// SPDX-License-Identifier: Apache-2.0
// Calls by name that meet in lines of their own accord: the bits and the errors of ordinary ones,
// no batch once they are usual, and every way back to the coordinator.
#include "runtime/lines/quick_calls.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/engine/prepared.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using base::ReduceOp;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

using QuickBody = std::function<void(int, Engine&)>;

void with_quick(int ranks, const QuickBody& body, const std::string& after = "3") {
  testing::EngineOptions options;
  options.environment = {"RONDE_LINES_AFTER=" + after};
  options.shape = base::JobShape::one_host(ranks);
  testing::run_job(ranks, options, body);
}

void expect_done(const base::Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

float ranks_sum(int ranks, float factor) {
  return factor * static_cast<float>(ranks * (ranks + 1)) / 2;
}

// One blocking sum of `size` elements, in which each rank gives its number, from 1, times `factor`.
void sum_once(Engine& engine, int rank, int ranks, const std::string& name, float factor,
              std::size_t size = 3) {
  std::vector<float> data(size, factor * static_cast<float>(rank + 1));
  expect_done(engine.run(testing::allreduce_of(name, data)));
  EXPECT_EQ(data, std::vector<float>(size, ranks_sum(ranks, factor))) << name;
}

// How many batches `body` takes; every rank calls it.
template <typename Body>
std::uint64_t batches_of(Engine& engine, const Body& body) {
  const std::uint64_t before = engine.statistics().batches;
  body();
  return engine.statistics().batches - before;
}

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

TEST(QuickCalls, GoOnWithoutARankThatHasJoined) {
  with_quick(3, [](int rank, Engine& engine) {
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 10; ++i) sum_once(engine, rank, 3, "loss", 2);
      for (int i = 0; i < rank * 5; ++i) {  // rank 0 leaves first, and rank 2 goes on alone
        std::vector<float> data{1.0F, 1.0F, 1.0F};
        expect_done(engine.run(testing::allreduce_of("loss", data)));
        EXPECT_EQ(data.front(), i < 5 ? 2.0F : 1.0F);
      }
      const auto joined = engine.join(true);
      ASSERT_TRUE(joined.ok()) << joined.status().message();
      expect_done(engine.wait(**joined));
    }
  });
}

// A thread is in the line while another one of its rank joins: that call is still this rank's.
TEST(QuickCalls, ThatAreUnderWayWhenTheirRankJoinsAreItsLast) {
  with_quick(2, [](int rank, Engine& engine) {
    for (int i = 0; i < 10; ++i) sum_once(engine, rank, 2, "loss", 2);
    const auto call = [&] {
      std::vector<float> data(3, 1.0F);
      const base::Status done = engine.run(testing::allreduce_of("loss", data));
      return done.ok() ? data.front() : -1.0F;
    };
    if (rank == 0) {
      std::this_thread::sleep_for(milliseconds(30));
      const float first = call();
      EXPECT_TRUE(first == 2.0F || first == 1.0F) << first;  // as the thread came before the join
      EXPECT_EQ(call(), 1.0F);
    }
    std::thread other;
    if (rank == 1) other = std::thread([&] { EXPECT_NE(call(), 1.0F); });
    if (rank == 1) std::this_thread::sleep_for(milliseconds(10));
    const auto joined = engine.join(true);
    ASSERT_TRUE(joined.ok()) << joined.status().message();
    expect_done(engine.wait(**joined));
    if (other.joinable()) other.join();
  });
}

// A thread sleeps in the line, the others' call wakes it, and before it has looked its rank joins
// and the others go on, in a call that they refuse in the line: neither that thread nor the name
// that gets the line next is confused by that.
TEST(QuickCalls, GoOnBesideAThreadWhoseRankHasJoined) {
  std::atomic<int> met{0};
  with_quick(2, [&](int rank, Engine& engine) {
    for (int round = 1; round <= 30; ++round) {
      const std::string name = "round " + std::to_string(round);
      for (int i = 0; i < 6; ++i) sum_once(engine, rank, 2, name, 2);
      std::vector<float> data(3, 1.0F);
      std::thread other;
      if (rank == 1) {
        other = std::thread([&] { expect_done(engine.run(testing::allreduce_of(name, data))); });
        while (met < round) std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(milliseconds(3));
        expect_done(engine.run(testing::allreduce_of(name, data)));
        met = round;
        std::vector<float> alone(3, 1.0F);
        const auto work = engine.submit(testing::allreduce_of(name, alone));
        ASSERT_TRUE(work.ok()) << work.status().message();
        expect_done(engine.wait(**work));
        EXPECT_EQ(alone.front(), 1.0F);
      }
      const auto joined = engine.join(true);
      ASSERT_TRUE(joined.ok()) << joined.status().message();
      expect_done(engine.wait(**joined));
      if (other.joinable()) other.join();
      EXPECT_EQ(data.front(), 2.0F);
      if (round % 2 == 0)
        sum_once(engine, rank, 2, name, 3);  // all take part: it gives its line back
    }
    for (int i = 0; i < 10; ++i) sum_once(engine, rank, 2, "new", 1);
    EXPECT_EQ(batches_of(engine, [&] { sum_once(engine, rank, 2, "new", 1); }), 0U);
  });
}

TEST(QuickCalls, EndWhereARankCloses) {
  testing::EngineOptions options;
  options.environment = {"RONDE_LINES_AFTER=2"};
  options.shape = base::JobShape::one_host(2);
  const auto engines = testing::open_engines(2, options);
  testing::on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    for (int i = 0; i < 10; ++i) sum_once(engine, rank, 2, "loss", 2);
    if (rank == 0) {
      std::vector<float> data(3, 1.0F);
      const base::Status closed = engine.run(testing::allreduce_of("loss", data));
      EXPECT_EQ(closed.code(), base::Code::kClosed);
      EXPECT_THAT(closed.message(), HasSubstr("rank 1"));
    }
    expect_done(engine.close());
    std::vector<float> data(3, 1.0F);
    EXPECT_EQ(engine.run(testing::allreduce_of("loss", data)).code(), base::Code::kClosed);
  });
}

// A thread is in the line, or will be, when its engine is closed by another one: whoever waits for
// this rank hears of it, in calls by name and in prepared ones.
TEST(QuickCalls, EndWhereARankClosesBesideAThreadInTheLine) {
  for (const bool prepared : {false, true}) {
    testing::EngineOptions options;
    options.environment = {"RONDE_LINES_AFTER=2"};
    options.shape = base::JobShape::one_host(3);
    const auto engines = testing::open_engines(3, options);
    const auto begin = std::chrono::steady_clock::now();
    testing::on_ranks(3, [&](int rank) {
      const testing::EnginePtr& engine = engines[static_cast<std::size_t>(rank)];
      std::vector<float> data(3, 1.0F);
      std::unique_ptr<Prepared> made;
      if (prepared) made = Prepared::make(engine, testing::allreduce_of("loss", data)).value();
      const auto until_the_end = [&] {
        base::Status last;
        while (last.ok())
          last = made ? made->run() : engine->run(testing::allreduce_of("loss", data));
        EXPECT_EQ(last.code(), base::Code::kClosed) << last.message();
        if (rank != 1) {
          EXPECT_THAT(last.message(), HasSubstr("rank 1"));
        }
      };
      std::thread other(until_the_end);
      if (rank == 1) {
        std::this_thread::sleep_for(milliseconds(20));
        engine->close().ignore();
      }
      other.join();
      made.reset();
      if (rank != 1) engine->close().ignore();
    });
    EXPECT_LE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  }
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
