// SPDX-License-Identifier: Apache-2.0
// What fails a job, and what does not: ranks that never join, stalls, batches that do not move,
// forks.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;
using testing::allreduce_of;
using testing::on_ranks;
using testing::open_engines;

// The time limits below that end something are longer than a busy machine may keep a rank from what
// it is to do before.

TEST(EngineFailureTest, SettingsThatDifferAreRefusedByName) {
  const auto job = LocalJob::create(2);
  ASSERT_TRUE(job.ok());
  on_ranks(2, [&](int rank) {
    const auto open = [&](const base::Config& config, const base::Clock& clock) {
      return (*job)->join(rank, config, clock);
    };
    const auto engine = Engine::open(open, {"RONDE_BATCH_BYTES=" + std::to_string(1000 + rank)},
                                     std::make_shared<base::SteadyClock>());
    ASSERT_FALSE(engine.ok());
    EXPECT_NE(engine.status().message().find("RONDE_BATCH_BYTES=1001 on rank 1"), std::string::npos)
        << engine.status().message();
  });
}

TEST(EngineFailureTest, ARankThatNeverOpensIsNamed) {
  const auto job = LocalJob::create(3);
  ASSERT_TRUE(job.ok());
  on_ranks(2, [&](int rank) {
    const auto open = [&](const base::Config& config, const base::Clock& clock) {
      return (*job)->join(rank, config, clock);
    };
    const auto engine = Engine::open(open, {"RONDE_START_TIMEOUT_SECONDS=4"},
                                     std::make_shared<base::SteadyClock>());
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.status().code(), Code::kDeadline);
    EXPECT_NE(engine.status().message().find("rank 2"), std::string::npos)
        << engine.status().message();
  });
}

TEST(EngineFailureTest, AStalledTensorFailsTheJobAndNamesTheRankThatIsMissing) {
  testing::EngineOptions options;
  options.environment = {"RONDE_STALL_WARNING_SECONDS=0.05", "RONDE_STALL_FAILURE_SECONDS=4"};
  const auto engines = open_engines(3, options);
  std::vector<float> a(4);
  std::vector<float> b(4);
  const auto first = engines[0]->submit(allreduce_of("late", a));
  const auto second = engines[1]->submit(allreduce_of("late", b));
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(second.ok());
  const Status status = engines[0]->wait(**first);
  EXPECT_EQ(status.code(), Code::kDeadline) << status.message();
  EXPECT_NE(status.message().find("for rank 2 (host "), std::string::npos) << status.message();
  EXPECT_EQ(engines[1]->wait(**second).message(), status.message());
  std::vector<float> c(4);
  const auto refused = engines[2]->submit(allreduce_of("other", c));
  if (refused.ok()) {
    EXPECT_EQ(engines[2]->wait(**refused).code(), Code::kDeadline);
  }
  on_ranks(3, [&](int rank) { engines[static_cast<std::size_t>(rank)]->close().ignore(); });
}

// Whoever still reads announcements after the failure would take the departure for its reason.
TEST(EngineFailureTest, ARankWhoseJobHasFailedDoesNotAnnounceThatItCloses) {
  const auto job = LocalJob::create(2);
  ASSERT_TRUE(job.ok());
  std::vector<testing::EnginePtr> engines(2);
  std::optional<collectives::Board> board;  // of the coordinator
  on_ranks(2, [&](int rank) {
    const auto open = [&](const base::Config& config, const base::Clock& clock) {
      auto joined = (*job)->join(rank, config, clock);
      if (rank == 0 && joined.ok()) board = (*joined)->board();
      return joined;
    };
    auto engine = Engine::open(open, {}, std::make_shared<base::SteadyClock>());
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engines[static_cast<std::size_t>(rank)] = std::move(*engine);
  });
  std::vector<float> a(4);
  std::vector<float> b(4);
  const auto first = engines[0]->submit(allreduce_of("of rank 0", a));
  const auto second = engines[1]->submit(allreduce_of("of rank 1", b));
  ASSERT_TRUE(first.ok() && second.ok());
  engines[1]->settle(**second, base::Nanoseconds(0));  // which fails the job
  EXPECT_EQ(engines[0]->wait(**first).code(), Code::kDeadline);
  EXPECT_EQ(engines[1]->close().code(), Code::kDeadline);
  auto stream = board->announce_reader(1);
  while (const auto bytes = stream.poll().value()) {
    EXPECT_FALSE(std::holds_alternative<ClosingAnnouncement>(decode_announcement(*bytes).value()));
  }
  EXPECT_EQ(engines[0]->close().code(), Code::kDeadline);
}

// Messages that never arrive: the batch does not move.
testing::EngineOptions stuck_batches() {
  testing::EngineOptions options;
  options.faults.max_delay = 2'000'000'000;
  options.faults.seed = 3;
  options.environment = {"RONDE_ALGORITHM=ring", "RONDE_SHUTDOWN_TIMEOUT_SECONDS=4",
                         "RONDE_STALL_WARNING_SECONDS=10"};
  return options;
}

TEST(EngineFailureTest, ClosingWithABatchThatDoesNotMoveEndsItOnEveryRank) {
  const auto engines = open_engines(2, stuck_batches());
  std::vector<float> a(100000, 1.0F);
  std::vector<float> b(100000, 1.0F);
  const auto first = engines[0]->submit(allreduce_of("stuck", a));
  const auto second = engines[1]->submit(allreduce_of("stuck", b));
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(second.ok());
  const Status closed = engines[0]->close();
  EXPECT_EQ(closed.code(), Code::kDeadline) << closed.message();
  EXPECT_NE(closed.message().find("rank 0 closes its engine"), std::string::npos)
      << closed.message();
  ASSERT_TRUE((*first)->completion.done());
  EXPECT_EQ(engines[0]->wait(**first).message(), closed.message());
  EXPECT_EQ(engines[1]->wait(**second).message(), closed.message());
  EXPECT_EQ(engines[1]->close().message(), closed.message());
}

TEST(EngineFailureTest, ABatchThatDoesNotMoveFailsAtTheStallDeadline) {
  testing::EngineOptions options = stuck_batches();
  options.environment = {"RONDE_ALGORITHM=ring", "RONDE_STALL_WARNING_SECONDS=0.1",
                         "RONDE_STALL_FAILURE_SECONDS=4"};
  const auto engines = open_engines(2, options);
  // With several hosts another one may know which rank stands still: it gets two seconds to report
  // it.
  const bool asks_others = testing::shape_of_environment(2).hosts() > 1;
  const auto deadline = std::chrono::milliseconds(asks_others ? 2300 : 300);
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    std::vector<float> data(100000, 1.0F);
    const auto work = engine.submit(allreduce_of("stuck", data));
    ASSERT_TRUE(work.ok());
    const auto start = std::chrono::steady_clock::now();
    const Status status = engine.wait(**work);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    EXPECT_EQ(status.code(), Code::kDeadline) << status.message();
    EXPECT_NE(status.message().find("'stuck' has waited"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("in batch 1"), std::string::npos) << status.message();
    engine.close().ignore();
  });
}

TEST(EngineFailureTest, ARankThatCannotEnterIsToldToTheOthers) {
  const auto job = LocalJob::create(2);
  ASSERT_TRUE(job.ok());
  const auto config = base::Config::from_environment({});
  ASSERT_TRUE(config.ok());
  on_ranks(2, [&](int rank) {
    const auto join = [&](const base::Config& settings, const base::Clock& clock) {
      return (*job)->join(rank, settings, clock);
    };
    if (rank == 0) {
      // Joins the job, reports that it failed, and never enters the board.
      auto member = join(*config, base::SteadyClock());
      ASSERT_TRUE(member.ok());
      (*member)->board().set_state(collectives::PresenceState::kDead);
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    const auto engine = Engine::open(join, {}, std::make_shared<base::SteadyClock>());
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.status().code(), Code::kPeerFailed);
    EXPECT_NE(engine.status().message().find("rank 0"), std::string::npos);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  });
}

// The coordinator receives every tensor's announcement before the ClosingAnnouncement of its rank.
TEST(EngineFailureTest, WhoSubmitsWhileTheEngineClosesIsServedOrToldSo) {
  for (int round = 0; round < 20; ++round) {
    const auto engines = open_engines(1);
    std::atomic<int> submitted{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, thread] {
        std::vector<float> data(4, 1.0F);
        Status last;
        for (int i = 0; last.ok(); ++i) {
          const auto work = engines[0]->submit(
              allreduce_of(std::to_string(thread) + "." + std::to_string(i), data));
          ++submitted;
          last = work.ok() ? engines[0]->wait(**work) : work.status();
        }
        EXPECT_EQ(last.code(), Code::kClosed) << last.message();
      });
    }
    while (submitted.load() < 20) std::this_thread::yield();
    const Status closed = engines[0]->close();
    EXPECT_TRUE(closed.ok()) << closed.message();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(EngineFailureTest, AForkedChildIsInert) {
  const auto engines = open_engines(2);
  std::vector<float> a(4, 1.0F);
  std::vector<float> b(4, 1.0F);
  const auto work = engines[0]->submit(allreduce_of("x", a));
  ASSERT_TRUE(work.ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto submitted = engines[0]->submit(allreduce_of("y", b));
    const base::Instant soon = engines[0]->clock().after(std::chrono::milliseconds(1));
    const auto waited = engines[0]->wait_until(**work, soon);
    const Status closed = engines[0]->close();
    const bool inert = submitted.status().code() == Code::kUnsupported &&
                       waited.status().code() == Code::kUnsupported &&
                       engines[0]->describe().status().code() == Code::kUnsupported &&
                       closed.code() == Code::kUnsupported;
    ::_exit(inert ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const auto other = engines[1]->submit(allreduce_of("x", b));
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(engines[0]->wait(**work).ok());
  EXPECT_TRUE(engines[1]->wait(**other).ok());
  on_ranks(2,
           [&](int rank) { EXPECT_TRUE(engines[static_cast<std::size_t>(rank)]->close().ok()); });
}

}  // namespace
}  // namespace ronde::runtime
