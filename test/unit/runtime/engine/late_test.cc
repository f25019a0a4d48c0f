// SPDX-License-Identifier: Apache-2.0
// A rank that is slow in its own work is named in each step, and one that comes late because it
// waits for another one is not.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"
#include "test/support/eventually.h"

namespace ronde::runtime {
namespace {

using testing::allreduce_of;

constexpr int kSteps = 20;
constexpr auto kDelay = std::chrono::milliseconds(50);

using LateRows = std::map<std::pair<std::string, int>, LateTensorOfRank>;

LateRows rows_of(Engine& engine) {
  LateRows rows;
  for (const LateTensorOfRank& row : engine.late()) rows[{row.tensor, row.rank}] = row;
  return rows;
}

testing::EngineOptions on_hosts(const std::vector<std::int32_t>& leaders) {
  testing::EngineOptions options;
  options.shape = base::JobShape::of_leaders(leaders).value();
  return options;
}

void wait_for(const std::atomic<int>& count, int least) {
  while (count < least) std::this_thread::yield();
}

// A backward of two gradients; between them rank 2 takes longer than the others, which have come
// by then, however busy the machine is. The first step makes the plan.
void train_with_a_slow_rank(int rank, Engine& engine, std::atomic<int>& arrived) {
  std::vector<float> last(100, 1.0F);
  std::vector<float> first(100, 1.0F);
  for (int step = 0; step <= kSteps; ++step) {
    const auto of_last = engine.submit(allreduce_of("last", last)).value();
    if (rank == 2 && step > 0) {
      wait_for(arrived, 3 * (step + 1));
      std::this_thread::sleep_for(kDelay);
    }
    const auto of_first = engine.submit(allreduce_of("first", first)).value();
    if (rank != 2) ++arrived;
    ASSERT_TRUE(engine.wait(*of_last).ok());
    ASSERT_TRUE(engine.wait(*of_first).ok());
  }
}

// Another rank may be later in all than that one, but once, on a busy machine.
bool is_latest(Engine& engine, const std::string& tensor, int rank) {
  const auto rows = engine.late();
  return !rows.empty() && rows.front().tensor == tensor && rows.front().rank == rank;
}

void expect_slow_rank(Engine& engine) {
  LateRows rows = rows_of(engine);
  const LateTensorOfRank& slow = rows[{"first", 2}];
  EXPECT_EQ(slow.steps, kSteps);
  EXPECT_GE(slow.total, kSteps * kDelay / 2);
  EXPECT_GE(slow.worst, slow.total / kSteps);
  EXPECT_STREQ(engine.late().front().tensor, "first");
  EXPECT_EQ(engine.late().front().rank, 2);
  for (const int other : {0, 1, 3}) EXPECT_EQ((rows[{"first", other}].steps), 0U) << other;
}

TEST(LateRanks, ADelayInOneRanksBackwardIsNamedInEachStep) {
  for (const auto& leaders : {std::vector<std::int32_t>{0, 0, 0, 0}, {0, 0, 2, 2}}) {
    bool over = false;
    for (int tries = 1; !over; ++tries) {
      std::atomic<int> arrived{0};
      testing::run_job(4, on_hosts(leaders), [&](int rank, Engine& engine) {
        train_with_a_slow_rank(rank, engine, arrived);
        if (rank != 0) {
          EXPECT_TRUE(engine.late().empty());
          return;
        }
        over = tries == 4 || is_latest(engine, "first", 2);
        if (over) expect_slow_rank(engine);
      });
    }
  }
}

// Rank 1 needs what rank 0 makes, which takes long; so both come late, and rank 1 last. Returns in
// how many steps rank 0 was late, rank 1 was, and was a victim, and who was the latest of both.
std::array<std::uint64_t, 4> late_beside_a_victim() {
  std::array<std::uint64_t, 4> seen{};
  std::atomic<int> of_rank_0{0};  // gradients so far
  std::atomic<int> of_rank_2{0};
  testing::run_job(3, on_hosts({0, 0, 0}), [&](int rank, Engine& engine) {
    const auto set = engine.subset({0, 1}, "stage").value();
    std::vector<float> data(100, 1.0F);
    for (int step = 0; step <= kSteps; ++step) {
      if (rank == 0 && step > 0) {
        wait_for(of_rank_2, step + 1);
        std::this_thread::sleep_for(kDelay);
      }
      if (rank < 2) {
        const auto staged = set->submit(allreduce_of("activations", data)).value();
        ASSERT_TRUE(set->wait(*staged).ok());
      }
      if (rank == 1) wait_for(of_rank_0, step + 1);
      const auto work = engine.submit(allreduce_of("gradient", data)).value();
      if (rank == 0) ++of_rank_0;
      if (rank == 2) ++of_rank_2;
      ASSERT_TRUE(engine.wait(*work).ok());
    }
    if (rank != 0) return;
    LateRows rows = rows_of(engine);
    const LateTensorOfRank& waits = rows[{"gradient", 1}];
    seen = {rows[{"gradient", 0}].steps, waits.steps, waits.steps_as_victim,
            static_cast<std::uint64_t>(set->late().front().rank)};
  });
  return seen;
}

// A busy machine may make another rank late: then there is another try.
TEST(LateRanks, ARankThatWaitsForAnotherOneIsAVictim) {
  const std::array<std::uint64_t, 4> expected{kSteps, 0, kSteps, 0};
  const auto seen =
      testing::tries_of(late_beside_a_victim, [&](const auto& one) { return one == expected; });
  EXPECT_EQ(seen, expected);
}

TEST(LateRanks, RanksOnTimeAreNoRows) {
  ArrivalSpan span;
  LateRanks late;
  for (const int rank : {0, 1, 2}) span.add(rank, {base::Instant(rank), base::Nanoseconds(0)});
  late.add("x", span);
  EXPECT_TRUE(late.read().empty());
  span.add(3, {kLate + base::Instant(7), base::Nanoseconds(0)});
  late.add("x", span);
  ASSERT_EQ(late.read().size(), 1U);
  EXPECT_EQ(late.read().front().rank, 3);
  // Ages, where the clock has gone on meanwhile.
  EXPECT_EQ(span.seen_at(base::Instant(10)).seen_at(base::Instant(10)), span);
}

// A steady step costs no message more: where nobody is late what is announced is what it was.
TEST(LateRanks, ASteadyStepAnnouncesAWordForEachTensor) {
  testing::run_job(2, on_hosts({0, 0}), [](int, Engine& engine) {
    std::vector<float> data(100, 1.0F);
    Statistics before;
    for (int step = 0; step <= kSteps; ++step) {
      if (step == 1) before = engine.statistics();
      ASSERT_TRUE(engine.wait(*engine.submit(allreduce_of("x", data)).value()).ok());
    }
    const Statistics now = engine.statistics();
    EXPECT_EQ(now.planned_requests - before.planned_requests, kSteps);
    EXPECT_EQ(now.full_requests, before.full_requests);
    EXPECT_EQ(now.batches - before.batches, kSteps);
  });
}

}  // namespace
}  // namespace ronde::runtime
