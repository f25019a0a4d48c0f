// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for each other beside the coordinator, in lines on the board: prepared calls,
// usual ones and open lines. It redirects the standard error of the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/engine/open_line.h"
#include "runtime/engine/prepared.h"
#include "test/support/engines.h"
#include "test/unit/runtime/engine/deadlock_kit.h"

namespace ronde::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using testing::allreduce_of;
using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<Prepared> prepared(Engine& engine, const std::string& name,
                                   std::vector<float>& data) {
  auto made = Prepared::make(engine.shared_from_this(), allreduce_of(name, data));
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : nullptr;
}

// Rank 0 runs 'a'; the other one does what only ends once rank 0 goes on.
void expect_crossed(const std::function<base::Status(Engine&)>& other, const std::string& waits) {
  const std::string said = said_by(with_grace("0.5", {0, 0}), 2, [&](int rank, Engine& engine) {
    std::vector<float> data(10, 1.0F);
    const auto a = prepared(engine, "a", data);
    EXPECT_TRUE(a->has_lines() && a->run().ok());
    const base::Status failed = rank == 0 ? a->run() : other(engine);
    EXPECT_EQ(failed.code(), base::Code::kDeadline);
    EXPECT_THAT(
        failed.message(),
        AllOf(HasSubstr("deadlock: all ranks stand still"),
              HasSubstr("rank 0 waits for prepared 'a' (call 2), rank 1 waits for " + waits),
              HasSubstr("This is the end of RONDE_DEADLOCK_GRACE_SECONDS")));
  });
  EXPECT_EQ(count_of(said, "the job fails in 0.5 s"), 1U) << said;
}

TEST(DeadlocksBesideTheCoordinator, APreparedCallAgainstACallByName) {
  expect_crossed([](Engine& engine) { return wait_for_one(engine, "b", "two.cc:22"); },
                 "'b' (two.cc:22)");
}

TEST(DeadlocksBesideTheCoordinator, APreparedCallAgainstAMessage) {
  expect_crossed(
      [](Engine& engine) {
        std::vector<float> value(1);
        MessageRequest message{.rank = 0, .dtype = base::DType::kF32};
        message.count = 1;
        message.tag = 7;
        message.memory = reinterpret_cast<std::byte*>(value.data());
        return engine.wait(*engine.receive(message).value());
      },
      "the message with tag 7 from rank 0 to rank 1");
}

TEST(DeadlocksBesideTheCoordinator, TwoPreparedCallsThatCross) {
  said_by(with_grace("0.5", {0, 0}), 2, [](int rank, Engine& engine) {
    std::vector<float> data(10, 1.0F);
    const auto a = prepared(engine, "a", data);
    const auto b = prepared(engine, "b", data);
    EXPECT_TRUE(a->has_lines() && a->run().ok());
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT((rank == 0 ? a : b)->run().message(),
                AllOf(HasSubstr("deadlock"), HasSubstr("rank 0 waits for prepared 'a' (call 2)"),
                      HasSubstr("rank 1 waits for prepared 'b' (call 1)")));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(1400));
    EXPECT_LE(std::chrono::steady_clock::now() - begin, seconds(20));
  });
}

// Calls by name that have come to lines, so that the coordinator knows of none.
TEST(DeadlocksBesideTheCoordinator, TwoUsualCallsThatCross) {
  said_by(with_grace("0.5", {0, 0}), 2, [](int rank, Engine& engine) {
    std::vector<float> data(10, 1.0F);
    for (int i = 0; i < 40; ++i) {
      EXPECT_TRUE(engine.run(allreduce_of("a", data)).ok());
      EXPECT_TRUE(engine.run(allreduce_of("b", data)).ok());
    }
    EXPECT_THAT(engine.run(allreduce_of(rank == 0 ? "a" : "b", data)).message(),
                AllOf(HasSubstr("deadlock"), HasSubstr("rank 0 waits for 'a' (call "),
                      HasSubstr("rank 1 waits for 'b' (call ")));
  });
}

// The preloaded library waits so.
TEST(DeadlocksBesideTheCoordinator, ALineThatIsWaitedForInSlices) {
  said_by(with_grace("0.5", {0, 0}), 2, [](int rank, Engine& engine) {
    const auto line = OpenLine::make(engine.shared_from_this(), "line").value();
    if (rank == 1) {
      EXPECT_THAT(wait_for_one(engine, "b").message(), HasSubstr("prepared 'line' (call 1)"));
      return;
    }
    OpenLine::Call barrier;
    barrier.operation = base::Operation::kBarrier;
    ASSERT_TRUE(line->start(barrier).ok());
    auto met = line->wait(milliseconds(1));
    while (met.ok() && *met == OpenLine::Met::kNotYet) met = line->wait(milliseconds(1));
    EXPECT_THAT(met.status().message(), HasSubstr("deadlock"));
  });
}

// A thread that runs prepared operations alone, none of which has ever waited, computes.
TEST(DeadlocksBesideTheCoordinator, AThreadThatRunsPreparedCallsKeepsTheJobAlive) {
  const std::string said = said_by(with_grace("0.5", {0, 0}), 2, [](int rank, Engine& engine) {
    std::vector<float> data(10, 1.0F);
    const auto a = prepared(engine, "a", data);
    std::latch known(1);  // before that no thread but this one is known to run anything
    std::thread computes([&] {
      EXPECT_TRUE(a->run().ok());
      known.count_down();
      std::this_thread::sleep_for(milliseconds(2500));
      EXPECT_TRUE(wait_for_one(engine, "metrics " + std::to_string(1 - rank)).ok());
    });
    known.wait();
    EXPECT_TRUE(wait_for_one(engine, "metrics " + std::to_string(rank)).ok());
    computes.join();
  });
  EXPECT_THAT(said, Not(HasSubstr("deadlock")));
}

// One that has stood still is rung, and computes: that it stood still is no longer true.
TEST(DeadlocksBesideTheCoordinator, WhoeverIsRungStandsStillNoMore) {
  const std::string said = said_by(with_grace("0.5", {0, 0}), 2, [](int rank, Engine& engine) {
    std::vector<float> data(10, 1.0F);
    const auto a = prepared(engine, "a", data);
    std::vector<float> other(10, 1.0F);
    auto later = rank == 1 ? engine.submit(allreduce_of("b", other)) : Engine::WorkPtr();
    // Rank 0 says at 1.5 and 2.5 s that it stands still, rank 1 looks at 3 s.
    std::this_thread::sleep_for(rank == 0 ? milliseconds(500) : milliseconds(2700));
    EXPECT_TRUE(a->run().ok());
    if (rank == 0) std::this_thread::sleep_for(milliseconds(1500));
    EXPECT_TRUE(rank == 0 ? wait_for_one(engine, "b").ok() : engine.wait(**later).ok());
  });
  EXPECT_THAT(said, Not(HasSubstr("deadlock")));
}

}  // namespace
}  // namespace ronde::runtime
