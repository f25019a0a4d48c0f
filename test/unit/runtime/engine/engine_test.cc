// SPDX-License-Identifier: Apache-2.0
// The whole runtime with engines in one process: operations, errors, closing.
#include "runtime/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/host_name.h"
#include "test/support/engines.h"
#include "test/support/eventually.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;
using testing::allgather_of;
using testing::allreduce_of;
using testing::barrier_of;
using testing::broadcast_of;
using testing::on_ranks;
using testing::open_engines;
using testing::run_job;

class EngineTest : public ::testing::TestWithParam<int> {};

// Rank r contributes (r + 1) * (i + 1): every element and every rank counts.
std::vector<float> contribution(int rank, std::size_t length) {
  std::vector<float> data(length);
  for (std::size_t i = 0; i < length; ++i) {
    data[i] = static_cast<float>(rank + 1) * static_cast<float>(i % 1000 + 1);
  }
  return data;
}

float factor_sum(int ranks) { return static_cast<float>(ranks * (ranks + 1) / 2); }

TEST_P(EngineTest, OneNameStepAfterStepUsesThePlan) {
  const int ranks = GetParam();
  run_job(ranks, [&](int rank, Engine& engine) {
    for (int step = 0; step < 200; ++step) {
      std::vector<float> data = contribution(rank, 33);
      Submission submission = allreduce_of("gradient", data);
      submission.will_wait = step % 2 == 0;
      const auto work = engine.submit(std::move(submission));
      ASSERT_TRUE(work.ok()) << work.status().message();
      ASSERT_TRUE(engine.wait(**work).ok());
      ASSERT_EQ(data[32], factor_sum(ranks) * 33.0F);
    }
    const Statistics statistics = engine.statistics();
    EXPECT_EQ(statistics.tensors, 200U);
    EXPECT_EQ(statistics.full_requests, 1U);
    EXPECT_EQ(statistics.planned_requests, 199U);
  });
}

TEST_P(EngineTest, NobodyLeavesABarrierBeforeEverybodyHasEntered) {
  const int ranks = GetParam();
  std::atomic<int> entered{0};
  run_job(ranks, [&](int rank, Engine& engine) {
    for (int round = 1; round <= 5; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(rank));
      entered.fetch_add(1);
      const auto work = engine.submit(barrier_of("barrier"));
      ASSERT_TRUE(work.ok()) << work.status().message();
      ASSERT_TRUE(engine.wait(**work).ok());
      EXPECT_GE(entered.load(), round * ranks);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, EngineTest, ::testing::Values(1, 2, 3, 4, 8));

// ---- disagreement ----

struct Disagreement {
  const char* what;
  std::function<void(Submission&)> change;  // what the last rank does differently
  const char* expected;
};

class DisagreementTest : public ::testing::TestWithParam<Disagreement> {};

TEST_P(DisagreementTest, IsTheSameErrorOnEveryRankAndTheEngineLivesOn) {
  const int ranks = 3;
  std::mutex mutex;
  constexpr int kRounds = 3;
  std::vector<std::set<std::string>> messages(kRounds);
  run_job(ranks, [&](int rank, Engine& engine) {
    for (int round = 0; round < kRounds; ++round) {
      std::vector<float> good(64, 1.0F);
      const auto fine = engine.submit(allreduce_of("t", good));
      ASSERT_TRUE(fine.ok());
      ASSERT_TRUE(engine.wait(**fine).ok()) << "round " << round;
      ASSERT_EQ(good[0], 3.0F);

      std::vector<float> data(64, 1.0F);
      Submission submission = allreduce_of("t", data);
      submission.place = "rank.cc:" + std::to_string(rank == 2 ? 20 : 10);
      if (rank == 2) GetParam().change(submission);
      const auto work = engine.submit(std::move(submission));
      ASSERT_TRUE(work.ok()) << work.status().message();
      const Status done = engine.wait(**work);
      EXPECT_EQ(done.code(), Code::kMismatch) << done.message();
      EXPECT_NE(done.message().find("'t'"), std::string::npos);
      EXPECT_NE(done.message().find("ranks 0-1 submitted"), std::string::npos) << done.message();
      EXPECT_NE(done.message().find("rank 2 submitted"), std::string::npos) << done.message();
      EXPECT_NE(done.message().find(GetParam().expected), std::string::npos) << done.message();
      EXPECT_NE(done.message().find("rank.cc:20"), std::string::npos) << done.message();
      const std::lock_guard lock(mutex);
      messages[static_cast<std::size_t>(round)].insert(done.message());
    }
  });
  for (const auto& of_round : messages) EXPECT_EQ(of_round.size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DisagreementTest,
    ::testing::Values(
        Disagreement{"Shape", [](Submission& s) { s.signature.shape = {8, 8}; }, "[8, 8]"},
        Disagreement{"DType", [](Submission& s) { s.signature.dtype = base::DType::kI32; }, "i32"},
        Disagreement{"Op", [](Submission& s) { s.signature.op = base::ReduceOp::kMax; }, "max"},
        Disagreement{"Operation",
                     [](Submission& s) { s.signature.operation = Operation::kBroadcast; },
                     "broadcast(root 0"},
        Disagreement{"Scale", [](Submission& s) { s.signature.prescale = 0.5; }, "prescale 0.5"}),
    [](const auto& kind) { return std::string(kind.param.what); });

TEST(EngineErrorTest, RootsThatDisagreeAreNamed) {
  run_job(2, [](int rank, Engine& engine) {
    std::vector<float> data(4);
    const auto work = engine.submit(broadcast_of("weights", data, rank));
    ASSERT_TRUE(work.ok());
    const Status done = engine.wait(**work);
    EXPECT_EQ(done.code(), Code::kMismatch);
    EXPECT_NE(done.message().find("root 1"), std::string::npos) << done.message();
  });
}

TEST(EngineErrorTest, ANameTwiceInFlightIsAnErrorAtOnce) {
  const auto engines = open_engines(2);
  std::vector<float> first(4, 1.0F);
  std::vector<float> second(4, 1.0F);
  const auto work = engines[0]->submit(allreduce_of("x", first));
  ASSERT_TRUE(work.ok());
  const auto again = engines[0]->submit(allreduce_of("x", second));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.status().code(), Code::kDuplicateName);
  EXPECT_NE(again.status().message().find("'x'"), std::string::npos);
  const auto other = engines[1]->submit(allreduce_of("x", second));
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(engines[0]->wait(**work).ok());
  EXPECT_TRUE(engines[1]->wait(**other).ok());
  EXPECT_EQ(first[0], 2.0F);
  on_ranks(2,
           [&](int rank) { EXPECT_TRUE(engines[static_cast<std::size_t>(rank)]->close().ok()); });
}

TEST(EngineErrorTest, WhatCanNeverWorkIsRefusedHere) {
  run_job(1, [](int, Engine& engine) {
    std::vector<float> data(8);
    const auto refused = [&](Submission submission, const char* expected) {
      const auto work = engine.submit(std::move(submission));
      ASSERT_FALSE(work.ok()) << expected;
      EXPECT_EQ(work.status().code(), Code::kInvalidArgument);
      EXPECT_NE(work.status().message().find(expected), std::string::npos)
          << work.status().message();
    };
    refused(allreduce_of("", data), "name");
    refused(broadcast_of("b", data, 1), "root 1");
    refused(broadcast_of("b", data, -1), "root -1");
    Submission scaled = allreduce_of("s", data);
    scaled.signature.dtype = base::DType::kI32;
    scaled.signature.prescale = 2.0;
    refused(scaled, "integers");
    Submission no_memory = allreduce_of("n", data);
    no_memory.views[0].input = nullptr;
    refused(no_memory, "null");
    Submission overlapping = allreduce_of("o", data);
    overlapping.signature.shape = {4};
    overlapping.views[0].output += 4;
    refused(overlapping, "overlap");
    Submission negative = allreduce_of("m", data);
    negative.signature.shape = {-1};
    refused(negative, "negative");
    Submission huge = allreduce_of("h", data);
    huge.signature.shape = {std::int64_t{1} << 62, 4};
    refused(huge, "2^63");
    Submission boolean = allreduce_of("l", data);
    boolean.signature.dtype = base::DType::kBool;
    refused(boolean, "sum is not defined for bool");
  });
}

// ---- waiting ----

// A submit with will_wait disarms the bell of its rank; any wait() of that rank arms it again.
TEST(EngineWaitTest, AWaitForWhatIsDoneLeavesNoRankDeaf) {
  const auto engines = open_engines(2);
  std::vector<std::vector<float>> data(2, std::vector<float>(1000, 1.0F));
  std::vector<Engine::WorkPtr> done(2);
  on_ranks(2, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto work = engines[r]->submit(allreduce_of("done", data[r]));
    ASSERT_TRUE(work.ok());
    EXPECT_TRUE(engines[r]->wait(**work).ok());
    done[r] = *work;
  });
  // Sleeps until no thread watches on rank 0.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  auto promised = allreduce_of("promised", data[0]);
  promised.will_wait = true;
  const auto mine = engines[0]->submit(std::move(promised));
  ASSERT_TRUE(mine.ok());
  EXPECT_TRUE(engines[0]->wait(*done[0]).ok());
  const auto theirs = engines[1]->submit(allreduce_of("promised", data[1]));
  ASSERT_TRUE(theirs.ok());
  // The work must be done before the timers of rank 0 would find it.
  const base::Instant later = engines[1]->clock().after(std::chrono::seconds(5));
  const auto ended = engines[1]->wait_until(**theirs, later);
  EXPECT_TRUE(ended.ok() && *ended);
  on_ranks(2,
           [&](int rank) { EXPECT_TRUE(engines[static_cast<std::size_t>(rank)]->close().ok()); });
}

// ---- closing ----

// Results that their callers have released are gone, although a tensor that was
// submitted before them is still pending.
TEST(EngineWaitTest, R6ALateTensorPinsNoResultOfAnother) {
  run_job(2, [](int rank, Engine& engine) {
    std::vector<float> late_data(1, 1.0F);
    const std::vector<float> data(16, 2.0F);
    Engine::WorkPtr late;
    if (rank == 0) late = engine.submit(allreduce_of("late", late_data)).value();
    std::vector<std::weak_ptr<Work>> released;
    for (int i = 0; i < 300; ++i) {
      const auto work = engine.submit(allgather_of("result " + std::to_string(i % 10), data));
      ASSERT_TRUE(work.ok());
      ASSERT_TRUE(engine.wait(**work).ok());
      released.emplace_back(*work);
    }
    // The agent drops its own reference a moment after it has notified the waiter.
    EXPECT_TRUE(testing::eventually([&] {
      return std::all_of(released.begin(), released.end(),
                         [](const std::weak_ptr<Work>& work) { return work.expired(); });
    }));
    const auto both = engine.submit(barrier_of("both have looked"));
    ASSERT_TRUE(both.ok() && engine.wait(**both).ok());
    if (rank == 1) late = engine.submit(allreduce_of("late", late_data)).value();
    EXPECT_TRUE(engine.wait(*late).ok());
  });
}

TEST(EngineCloseTest, AWorkThatTheOthersNeverJoinFailsWhenTheyClose) {
  const auto engines = open_engines(3);
  std::vector<float> data(4);
  on_ranks(3, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    if (rank != 1) {
      EXPECT_TRUE(engine.close().ok());
      return;
    }
    const auto work = engine.submit(allreduce_of("lonely", data));
    // Ranks 0 and 2 may have departed before: then the tensor is refused at once.
    const Status status = work.ok() ? engine.wait(**work) : work.status();
    EXPECT_EQ(status.code(), Code::kClosed) << status.message();
    EXPECT_NE(status.message().find("closed"), std::string::npos) << status.message();
    engine.close().ignore();
  });
}

TEST(EngineCloseTest, TheDeadlineFailsWhatTheOthersDoNotJoin) {
  testing::EngineOptions options;
  options.environment = {"RONDE_SHUTDOWN_TIMEOUT_SECONDS=0.2"};
  const auto engines = open_engines(2, options);
  std::vector<float> data(4);
  const auto work = engines[0]->submit(allreduce_of("lonely", data));
  ASSERT_TRUE(work.ok());
  const auto start = std::chrono::steady_clock::now();
  const Status closed = engines[0]->close();
  EXPECT_EQ(closed.code(), Code::kClosed) << closed.message();
  EXPECT_NE(closed.message().find("'lonely'"), std::string::npos) << closed.message();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  EXPECT_TRUE((*work)->completion.done());
  EXPECT_EQ((*work)->status.code(), Code::kClosed);
  EXPECT_TRUE(engines[1]->close().ok());
}

TEST(EngineCloseTest, EnginesCanBeOpenedAgain) {
  for (int round = 0; round < 5; ++round) {
    run_job(2, [&](int, Engine& engine) {
      std::vector<float> data(4, 1.0F);
      const auto work = engine.submit(allreduce_of("x", data));
      ASSERT_TRUE(work.ok());
      EXPECT_TRUE(engine.wait(**work).ok());
    });
  }
}

TEST(EngineDescribeTest, TheTableIsTheSameOnEveryRankOfTwoHosts) {
  testing::EngineOptions options;
  options.shape = base::JobShape::of_leaders(std::vector<std::int32_t>{0, 0, 2}).value();
  const std::string host = base::host_name();
  const std::string pid = std::to_string(::getpid());
  run_job(3, options, [&](int, Engine& engine) {
    const auto text = engine.describe();
    ASSERT_TRUE(text.ok());
    EXPECT_THAT(*text, ::testing::StartsWith("rank  host"));
    EXPECT_THAT(*text, ::testing::HasSubstr("\n   1  " + host + "#0  -        " + pid +
                                            "  rank 0 in shared memory\n   2  " + host + "#1"));
    EXPECT_THAT(*text,
                ::testing::EndsWith("  rank 0 over memory; rank 0 over socket pairs (control)"));
    EXPECT_EQ(engine.describe().value(), *text) << "the text is made once";
  });
}

}  // namespace
}  // namespace ronde::runtime
