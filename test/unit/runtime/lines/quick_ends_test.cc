// SPDX-License-Identifier: Apache-2.0
// Calls that meet in lines of their own accord, when a rank joins or closes its engine.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/engine/prepared.h"
#include "test/support/engines.h"
#include "test/unit/runtime/lines/quick_kit.h"

namespace ronde::runtime {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(QuickCallsEnd, GoOnWithoutARankThatHasJoined) {
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
TEST(QuickCallsEnd, ThatAreUnderWayWhenTheirRankJoinsAreItsLast) {
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
TEST(QuickCallsEnd, GoOnBesideAThreadWhoseRankHasJoined) {
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

TEST(QuickCallsEnd, EndWhereARankCloses) {
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
TEST(QuickCallsEnd, EndWhereARankClosesBesideAThreadInTheLine) {
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

}  // namespace
}  // namespace ronde::runtime
