// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for each other hear of it within seconds, with the tensors and places of all; a
// thread that may still submit keeps the job alive. Deadlines of single requests. It redirects the
// standard error of the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
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

void cross(int rank, Engine& engine) {
  EXPECT_TRUE(wait_for_one(engine, "first").ok());
  const auto begin = std::chrono::steady_clock::now();
  const base::Status failed =
      rank == 0 ? wait_for_one(engine, "a", "one.cc:11") : wait_for_one(engine, "b", "two.cc:22");
  EXPECT_EQ(failed.code(), base::Code::kDeadline);
  EXPECT_THAT(failed.message(),
              AllOf(HasSubstr("deadlock: all ranks stand still"),
                    HasSubstr("rank 0 waits for 'a' (one.cc:11)"),
                    HasSubstr("'b' (two.cc:22). This is the end of RONDE_DEADLOCK_GRACE_SECONDS")));
  // The warning comes after 1 s and the failure 1 s later; the rest is for a busy machine.
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(1500));
  EXPECT_LE(std::chrono::steady_clock::now() - begin, seconds(20));
}

TEST(Deadlocks, CrossedTensorsAreToldAndFailTheJob) {
  const std::string said = said_by(with_grace("1", {0, 0}), 2, cross);
  EXPECT_THAT(said, HasSubstr("rank 1 waits for 'b' (two.cc:22); the job fails in 1 s "
                              "(RONDE_DEADLOCK_GRACE_SECONDS)"));
  EXPECT_EQ(count_of(said, "the job fails in 1 s"), 1U) << said;
}

TEST(Deadlocks, AreFoundOverSeveralHosts) {
  const std::string said = said_by(with_grace("1", {0, 0, 2, 3}), 4, cross);
  EXPECT_THAT(said, HasSubstr("ranks 1-3 wait for 'b' (two.cc:22); the job fails in 1 s"));
  EXPECT_EQ(count_of(said, "the job fails in 1 s"), 3U) << "once on each host: " << said;
}

// Each of two ranks waits in a set for what the other one submits only after it has waited in
// another set; two more wait in the job.
void cross_in_sets(int rank, Engine& engine) {
  const std::vector<std::int32_t> both{engine.size() - 2, engine.size() - 1};
  if (rank < both.front()) {
    EXPECT_THAT(wait_for_one(engine, "all", "three.cc:33").message(), HasSubstr("deadlock"));
    return;
  }
  const auto a = engine.subset(both, "a").value();
  const auto b = engine.subset(both, "b").value();
  EXPECT_TRUE(wait_for_one(*a, "x").ok() && wait_for_one(*b, "x").ok());
  const base::Status failed = rank == both.front() ? wait_for_one(*a, "x", "one.cc:11")
                                                   : wait_for_one(*b, "x", "two.cc:22");
  EXPECT_EQ(failed.code(), base::Code::kDeadline);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("deadlock: all ranks stand still"),
                                      HasSubstr(" waits for 'x' (process set 'a', one.cc:11)"),
                                      HasSubstr(" waits for 'x' (process set 'b', two.cc:22)")));
}

TEST(Deadlocks, OfCallsThatCrossInTheJobAndInSetsOverHostsAreFound) {
  said_by(with_grace("1", {0, 0, 2, 3}), 4, cross_in_sets);
}

// Two ranks open two sets, each another one first; two more wait in the job.
void cross_openings(int rank, Engine& engine) {
  const std::vector<std::int32_t> both{engine.size() - 2, engine.size() - 1};
  base::Status failed;
  if (rank < both.front()) {
    failed = wait_for_one(engine, "all", "three.cc:33");
  } else {
    EXPECT_TRUE(engine.subset(both, "whole").ok());
    failed = rank == both.front() ? engine.subset(both, "a", "one.cc:11").status()
                                  : engine.subset(both, "b", "two.cc:22").status();
  }
  EXPECT_EQ(failed.code(), base::Code::kDeadline);
  EXPECT_THAT(failed.message(),
              AllOf(HasSubstr("deadlock: all ranks stand still"),
                    HasSubstr(" waits for 'a' (a process set that opens, one.cc:11)"),
                    HasSubstr(" waits for 'b' (a process set that opens, two.cc:22)")));
}

TEST(Deadlocks, OfSetsThatAreOpenedInOtherOrdersAreFound) {
  said_by(with_grace("1", {0, 0, 2, 3}), 4, cross_openings);
}

// The thread that opens the set has a time of its own, after which it may do something else.
TEST(Deadlocks, OpeningASetWithATimeIsNone) {
  const std::string said = said_by(with_grace("0.2", {0, 0}), 2, [](int rank, Engine& engine) {
    const auto other = engine.subset({0, 1}, "only " + std::to_string(rank), "", seconds(3));
    EXPECT_EQ(other.status().code(), base::Code::kDeadline);
    EXPECT_TRUE(wait_for_one(engine, "both").ok());
  });
  EXPECT_THAT(said, Not(HasSubstr("deadlock")));
}

// Rank 0 also has one on its way that nobody receives.
void cross_in_messages(int rank, Engine& engine) {
  EXPECT_TRUE(wait_for_one(engine, "first").ok());
  std::vector<float> data(10'000);
  const auto request = [&](std::int64_t tag) {
    MessageRequest message{.rank = 1 - rank, .tag = tag, .dtype = base::DType::kF32};
    message.count = rank == 0 ? 10'000 : 1;
    message.memory = reinterpret_cast<std::byte*>(data.data());
    message.file = "one.cc";
    message.line = 10 + rank;
    return message;
  };
  const auto sent = rank == 0 ? engine.send(request(3)).value() : nullptr;
  const auto begin = std::chrono::steady_clock::now();
  const base::Status failed = engine.wait(*engine.receive(request(5 + rank)).value());
  EXPECT_EQ(failed.code(), base::Code::kDeadline);
  EXPECT_THAT(
      failed.message(),
      AllOf(HasSubstr("deadlock: all ranks stand still"),
            HasSubstr("rank 0 waits for the message with tag 3 from rank 0 to rank 1 (10000 of "
                      "f32, at one.cc:10), the message with tag 5 from rank 1 to rank 0 (10000 of "
                      "f32, at one.cc:10), rank 1 waits for the message with tag 6 from rank 0 "
                      "to rank 1 (1 of f32, at one.cc:11)"),
            HasSubstr("RONDE_DEADLOCK_GRACE_SECONDS")));
  EXPECT_LE(std::chrono::steady_clock::now() - begin, seconds(20)) << "with no other timer";
}

TEST(Deadlocks, OfMessagesAloneAreToldWithPeersAndTags) {
  for (const std::vector<std::int32_t>& leaders :
       {std::vector<std::int32_t>{0, 0}, std::vector<std::int32_t>{0, 1}}) {
    testing::EngineOptions options = with_grace("1", leaders);
    options.environment.push_back("RONDE_STALL_WARNING_SECONDS=600");
    const std::string said = said_by(options, 2, cross_in_messages);
    EXPECT_THAT(said, HasSubstr("; the job fails in 1 s"));
  }
}

// On each rank a thread for metrics waits for what the other rank submits after 10 s of computing,
// twice the grace.
TEST(Deadlocks, AThreadThatComputesKeepsTheJobAlive) {
  const std::string said = said_by(with_grace("5", {0, 0}), 2, [](int rank, Engine& engine) {
    EXPECT_TRUE(wait_for_one(engine, "step 1").ok());  // so it is one that submits
    std::thread metrics(
        [&] { EXPECT_TRUE(wait_for_one(engine, "metrics " + std::to_string(rank)).ok()); });
    std::this_thread::sleep_for(seconds(10));
    EXPECT_TRUE(wait_for_one(engine, "metrics " + std::to_string(1 - rank)).ok());
    metrics.join();
  });
  EXPECT_THAT(said, Not(HasSubstr("deadlock")));
}

// The thread that computes has only sent messages until then.
TEST(Deadlocks, AThreadThatSendsMessagesKeepsTheJobAlive) {
  const std::string said = said_by(with_grace("1", {0, 0}), 2, [](int rank, Engine& engine) {
    float value = 1.0F;
    MessageRequest message{.rank = 1 - rank, .dtype = base::DType::kF32};
    message.count = 1;
    message.memory = reinterpret_cast<std::byte*>(&value);
    const auto pass = [&] {
      const auto work = rank == 1 ? engine.send(message) : engine.receive(message);
      EXPECT_TRUE(engine.wait(*work.value()).ok());
    };
    pass();
    std::thread metrics;
    if (rank == 1) {
      metrics = std::thread([&] { EXPECT_TRUE(wait_for_one(engine, "metrics").ok()); });
      std::this_thread::sleep_for(seconds(5));
    }
    pass();
    if (rank == 0) {
      EXPECT_TRUE(wait_for_one(engine, "metrics").ok());
    } else {
      metrics.join();
    }
  });
  EXPECT_THAT(said, Not(HasSubstr("deadlock")));
}

// The thread that computes uses a process set alone until then.
TEST(Deadlocks, AThreadThatComputesForAProcessSetKeepsTheJobAlive) {
  said_by(with_grace("1", {0, 0}), 2, [](int rank, Engine& engine) {
    const auto set = engine.subset({0, 1}, "a").value();
    EXPECT_TRUE(wait_for_one(*set, "step 1").ok());
    std::thread metrics(
        [&] { EXPECT_TRUE(wait_for_one(engine, "metrics " + std::to_string(rank)).ok()); });
    std::this_thread::sleep_for(milliseconds(2800));
    EXPECT_TRUE(wait_for_one(engine, "metrics " + std::to_string(1 - rank)).ok());
    metrics.join();
  });
}

TEST(Deadlocks, AThreadThatHasEndedDoesNotCount) {
  const std::string said = said_by(with_grace("0.5", {0, 0}), 2, [](int rank, Engine& engine) {
    std::thread([&] { EXPECT_TRUE(wait_for_one(engine, "begin").ok()); }).join();
    EXPECT_EQ(wait_for_one(engine, "only " + std::to_string(rank)).code(), base::Code::kDeadline);
  });
  EXPECT_THAT(said, HasSubstr("deadlock"));
}

// Whoever waits for a time of its own may submit something else then.
TEST(Deadlocks, AWaitWithATimeIsNone) {
  const std::string said = said_by(with_grace("0.2", {0, 0}), 2, [](int rank, Engine& engine) {
    std::vector<float> data(10, 1.0F);
    auto work = engine.submit(allreduce_of("mine " + std::to_string(rank), data));
    ASSERT_TRUE(work.ok());
    ASSERT_TRUE(engine.wait_until(**work, engine.clock().after(seconds(3))).ok());
    EXPECT_TRUE(wait_for_one(engine, "mine " + std::to_string(1 - rank)).ok());
    EXPECT_TRUE(engine.wait(**work).ok());
  });
  EXPECT_THAT(said, Not(HasSubstr("deadlock")));
}

TEST(Deadlocks, AWaitInSlicesIsOne) {
  said_by(with_grace("0.5", {0, 0}), 2, [](int rank, Engine& engine) {
    std::vector<float> data(10, 1.0F);
    auto work = engine.submit(allreduce_of("mine " + std::to_string(rank), data));
    ASSERT_TRUE(work.ok());
    for (int slices = 0; slices < 200; ++slices) {
      const auto done = engine.wait_slice(**work, engine.clock().after(milliseconds(100)));
      ASSERT_TRUE(done.ok());
      if (*done) break;
    }
    EXPECT_THAT(Engine::result(**work).message(), HasSubstr("deadlock"));
  });
}

// ---- deadlines of requests ----

base::Status wait_with_deadline(Engine& engine, const std::string& name,
                                base::Nanoseconds deadline) {
  std::vector<float> data(10, 1.0F);
  Submission submission = allreduce_of(name, data);
  submission.deadline = deadline;
  auto work = engine.submit(std::move(submission));
  return work.ok() ? engine.wait(**work) : work.status();
}

TEST(RequestDeadlines, AnOperationThatIsNotDoneByThenFailsTheJob) {
  for (const std::vector<std::int32_t>& leaders :
       {std::vector<std::int32_t>{0, 0}, std::vector<std::int32_t>{0, 1}}) {
    said_by(with_grace("60", leaders), 2, [](int rank, Engine& engine) {
      EXPECT_TRUE(wait_with_deadline(engine, "in time", seconds(60)).ok());
      if (rank == 1) {
        EXPECT_EQ(wait_for_one(engine, "alive").code(), base::Code::kDeadline);
        return;
      }
      const auto begin = std::chrono::steady_clock::now();
      const base::Status late = wait_with_deadline(engine, "late", milliseconds(300));
      EXPECT_EQ(late.code(), base::Code::kDeadline);
      const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - begin;
      const std::string waited = "'late' has waited ";
      ASSERT_THAT(late.message(), AllOf(HasSubstr(waited), HasSubstr("for rank 1"),
                                        HasSubstr("This is the deadline of the request")));
      // 0.3 s, and more on a busy machine; rounded to tenths.
      const double said =
          std::stod(late.message().substr(late.message().find(waited) + waited.size()));
      EXPECT_GE(said, 0.3);
      EXPECT_LE(said, gone.count() + 0.1);
      EXPECT_GE(gone, milliseconds(300));
      EXPECT_LE(gone, seconds(20));
    });
  }
}

// A sleeping driver does not know of a deadline that another thread brings.
TEST(RequestDeadlines, HoldsWhileNobodyWaits) {
  said_by(with_grace("60", {0, 0}), 2, [](int rank, Engine& engine) {
    EXPECT_TRUE(wait_for_one(engine, "first").ok());
    if (rank == 1) {
      EXPECT_EQ(wait_for_one(engine, "other").code(), base::Code::kDeadline);
      return;
    }
    std::this_thread::sleep_for(milliseconds(300));
    std::vector<float> data(10, 1.0F);
    Submission submission = allreduce_of("late", data);
    submission.deadline = milliseconds(200);
    auto work = engine.submit(std::move(submission));
    ASSERT_TRUE(work.ok());
    for (int i = 0; i < 200 && !(*work)->completion.done(); ++i) {
      std::this_thread::sleep_for(milliseconds(100));
    }
    ASSERT_TRUE((*work)->completion.done());
    EXPECT_THAT(Engine::result(**work).message(), HasSubstr("This is the deadline of the request"));
  });
}

// Longer than that of the engine, too.
TEST(RequestDeadlines, IsInPlaceOfTheStallDeadline) {
  testing::EngineOptions options = with_grace("60", {0, 0});
  options.environment.push_back("RONDE_STALL_FAILURE_SECONDS=0.5");
  said_by(options, 2, [](int rank, Engine& engine) {
    if (rank == 1) std::this_thread::sleep_for(milliseconds(2000));
    EXPECT_TRUE(wait_with_deadline(engine, "patient", seconds(60)).ok());
  });
}

}  // namespace
}  // namespace ronde::runtime
