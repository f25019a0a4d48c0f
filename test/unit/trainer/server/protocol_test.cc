// SPDX-License-Identifier: Apache-2.0
// The servers' promises, in seeded schedules of the simulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "bindings/trainer/server/coordinator/coordinator_state.h"
#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/server/variables.h"
#include "test/unit/trainer/server/simulation.h"

namespace ronde::trainer::server {
namespace {

// What must hold of any run.
void check(const Plan& plan, std::uint64_t seed, std::map<std::string, std::uint64_t>* sums = {}) {
  SCOPED_TRACE(testing::Message() << text_of(plan.mode) << ", seed " << seed);
  Simulation run(plan, seed);
  run.run();
  ASSERT_EQ(run.trouble, "");
  if (sums != nullptr) (*sums)["blows"] += run.blows;
  // Each worker has at most a push, a pull and their entries and answers under way, twice when one
  // was killed.
  EXPECT_LE(run.most_kept, 16U * (kWorkers + 1));
  for (std::uint32_t group = 0; group < plan.servers; ++group) {
    const Shard* const shard = run.home(group);
    ASSERT_NE(shard, nullptr);
    ASSERT_TRUE(shard->created());
    auto& variables = const_cast<Variables&>(*shard->variables());
    const std::vector<float> values = variables.values({}).whole();
    std::uint64_t marked = 0;
    double sum = 0.0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const float value = values[i];
      sum += value;
      marked += value != 0.0F ? 1U : 0U;
      if (plan.mode.mode != Mode::kSync) {
        ASSERT_TRUE(value == 0.0F || value == 1.0F) << "counted more than once: " << value;
      }
      if (run.acknowledged[group].contains(i)) {
        ASSERT_NE(value, 0.0F) << "acknowledged and lost: " << run.state();
      }
      if (run.dropped[group].contains(i)) {
        ASSERT_EQ(value, 0.0F) << "dropped and counted";
      }
    }
    // What was sent was applied or dropped, and told, but for what those who were killed had on the
    // way.
    EXPECT_LE(run.sent[group].size(),
              run.acknowledged[group].size() + run.dropped[group].size() + run.lives_lost);
    const ServerCounts counts = shard->counts();
    const auto& steps = counts.steps_by_worker;
    EXPECT_EQ(std::reduce(steps.begin(), steps.end()),
              marked);  // global_step is the sum of the workers' steps
    EXPECT_NEAR(sum, static_cast<double>(variables.version()), 1e-3);  // each update moves by 1
    if (plan.mode.mode != Mode::kSync) {
      EXPECT_EQ(variables.version(), marked);
    } else {
      EXPECT_EQ(counts.staleness[0], marked);  // no push of an earlier round counts
    }
    if (sums != nullptr) {
      (*sums)["pushes"] += marked;
      (*sums)["dropped"] += run.dropped[group].size();
    }
  }
}

std::uint64_t schedules(std::uint64_t few) {
  const char* const all = std::getenv("RONDE_SCHEDULES");
  return all == nullptr ? few : std::strtoull(all, nullptr, 10);
}

Plan plan_of(const std::string& mode) {
  Plan plan;
  plan.mode = mode_of(mode);
  plan.loss = 0.05;
  plan.twice = 0.05;
  return plan;
}

TEST(ServerProtocol, AsyncCountsEachPushOnce) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("async");
    plan.kills = 2;
    check(plan, seed);
  }
}

TEST(ServerProtocol, BoundedStalenessHolds) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("stale=" + std::to_string(1 + seed % 3));
    plan.kills = static_cast<int>(seed % 3);
    check(plan, seed);
  }
}

TEST(ServerProtocol, SyncRoundsAverage) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("sync");
    plan.kills = static_cast<int>(seed % 3);
    plan.mode.backup_workers = seed % 4 == 3 ? 1 : 0;
    check(plan, seed);
  }
}

// A pause is longer than the time-out of a worker, whose push may then be late once in each group.
TEST(ServerProtocol, AWorkerThatWasLateOnceTakesPartAgain) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("sync");
    plan.loss = plan.twice = 0.0;
    plan.pauses = 1 + static_cast<int>(seed % 2);
    plan.servers = 1 + static_cast<std::uint32_t>(seed % 3);
    std::map<std::string, std::uint64_t> sums;
    check(plan, seed, &sums);
    EXPECT_LE(sums["dropped"], static_cast<std::uint64_t>(plan.pauses) * plan.servers) << seed;
  }
}

TEST(ServerProtocol, BackupWorkersAndPausesOverManyServersEnd) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("sync");
    plan.mode.backup_workers = static_cast<std::uint32_t>(seed % 3);
    plan.pauses = static_cast<int>(seed % 4);
    plan.kills = static_cast<int>(seed % 2);
    plan.servers = 3 + static_cast<std::uint32_t>(seed % 2);
    check(plan, seed);
  }
}

TEST(ServerProtocol, AServerThatDiesIsTakenOver) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of(seed % 3 == 0 ? "async" : seed % 3 == 1 ? "sync" : "stale=2");
    plan.kills_server = true;
    plan.kills = static_cast<int>(seed % 2);
    plan.servers = seed % 2 == 0 ? 2 : 3;
    check(plan, seed);
  }
}

// As on one host that goes down. The next server has all, whoever of the two is there first.
TEST(ServerProtocol, AServerThatDiesWithTheChiefIsTakenOver) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of(seed % 3 == 0 ? "async" : seed % 3 == 1 ? "sync" : "stale=2");
    plan.kills_server = plan.kills_chief = true;
    plan.servers = seed % 2 == 0 ? 2 : 3;
    check(plan, seed);
  }
}

// All roles are killed and stand still at random: every push is counted once, as applied or
// dropped, and the sums agree with what workers have sent.
TEST(ServerProtocol, AnybodyMayDieOrStandStill) {
  std::map<std::string, std::uint64_t> sums;
  for (std::uint64_t seed = 0; seed < schedules(500); ++seed) {
    Plan plan = plan_of(seed % 3 == 0 ? "async" : seed % 3 == 1 ? "sync" : "stale=2");
    plan.servers = 2 + static_cast<std::uint32_t>(seed % 3);
    plan.kills_server = seed % 2 == 0;
    plan.kills_chief = seed % 4 == 0;
    plan.kills = plan.pauses = plan.other_pauses = 2;
    plan.chief_kills = 1;
    check(plan, seed, &sums);
  }
  RecordProperty("blows", std::to_string(sums["blows"]));
  EXPECT_GE(sums["blows"], 200U);
  EXPECT_GE(sums["pushes"], 1000U);
}

// Started again so soon that no task misses it: the standby has its entries.
TEST(ServerProtocol, AServerThatComesBackEmptyIsTakenOver) {
  for (std::uint64_t seed = 0; seed < schedules(100); ++seed) {
    Plan plan = plan_of(seed % 3 == 0 ? "async" : seed % 3 == 1 ? "sync" : "stale=2");
    plan.kills_server = plan.restarts_server = true;
    plan.servers = seed % 2 == 0 ? 2 : 3;
    check(plan, seed);
  }
}

}  // namespace
}  // namespace ronde::trainer::server
