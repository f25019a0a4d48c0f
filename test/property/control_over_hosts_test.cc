// SPDX-License-Identifier: Apache-2.0
// The control plane over several hosts, under thousands of random jobs and schedules: every rank
// executes the same batches in the same order, nothing is lost or executed twice or before every
// rank has submitted it, all ranks receive the same errors, and every job finishes. The promises
// themselves are in hosts_simulation.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "test/property/draws.h"
#include "test/support/hosts_simulation.h"

namespace ronde::runtime {
namespace {

using Random = HostsSimulation::Random;

struct HostsMix {
  double shape_changes = 0;  // on all ranks
  double disagreements = 0;  // on one rank
  double early_closings = 0;
  double stalls = 0;
  double gives_up = 0;  // on one rank, in a process set
  bool gathers = false;
};

// Returns 1 to 6 hosts of 1 to 3 ranks, which need not follow each other.
base::JobShape random_shape(Random& random, std::int64_t least_hosts) {
  const std::int64_t hosts = draw(random, least_hosts, 6);
  std::vector<std::int64_t> hosts_of_ranks;
  for (std::int64_t host = 0; host < hosts; ++host) {
    for (std::int64_t i = draw(random, 1, 3); i > 0; --i) hosts_of_ranks.push_back(host);
  }
  if (chance(random, 0.3)) std::shuffle(hosts_of_ranks.begin(), hosts_of_ranks.end(), random);
  std::vector<std::int32_t> leaders;
  for (const std::int64_t host : hosts_of_ranks) {
    const auto first = std::find(hosts_of_ranks.begin(), hosts_of_ranks.end(), host);
    leaders.push_back(base::narrow<std::int32_t>(first - hosts_of_ranks.begin()));
  }
  return base::JobShape::of_leaders(leaders).value();
}

void add_tensor(Random& random, HostsWorkload& workload, std::int64_t times, const HostsMix& mix) {
  const auto ranks = base::narrow<std::size_t>(workload.shape.ranks());
  Signature base;
  base.op = base::ReduceOp::kSum;
  base.shape = {draw(random, 1, 4), 3};
  base.priority = base::narrow<std::int32_t>(draw(random, 0, 2));
  if (mix.gathers && chance(random, 0.3)) base.operation = Operation::kAllgather;
  workload.signatures.emplace_back();
  workload.disagree.emplace_back();
  for (std::int64_t time = 0; time < times; ++time) {
    if (chance(random, mix.shape_changes)) ++base.shape[1];
    std::vector<Signature> of_ranks(ranks, base);
    if (base.operation == Operation::kAllgather) {
      for (std::size_t r = 0; r < ranks; ++r)
        of_ranks[r].shape[0] = static_cast<std::int64_t>(r % 3);
    }
    const bool disagree = ranks > 1 && chance(random, mix.disagreements);
    if (disagree)
      of_ranks[base::narrow<std::size_t>(draw(random, 0, std::ssize(of_ranks) - 1))].shape[1] = 99;
    workload.signatures.back().push_back(std::move(of_ranks));
    workload.disagree.back().push_back(disagree);
  }
}

HostsWorkload random_workload(Random& random, std::int64_t names, std::int64_t times,
                              const HostsMix& mix, std::int64_t least_hosts = 1) {
  HostsWorkload workload;
  workload.shape = random_shape(random, least_hosts);
  workload.fan_in = base::narrow<std::int32_t>(draw(random, 1, 3));
  const std::int64_t capacities[] = {1, 2, 3, 64};
  workload.capacity = capacities[draw(random, 0, 3)];
  workload.limit = base::Bytes(chance(random, 0.5) ? 1 << 20 : draw(random, 1, 100));
  workload.ring_bytes = chance(random, 0.3) ? 64 : 4096;
  const std::int64_t delays[] = {0, 5, 100};
  workload.longest_delay = delays[draw(random, 0, 2)];
  workload.stalls = mix.stalls;
  workload.gives_up = mix.gives_up;
  for (std::int64_t n = 0; n < names; ++n) add_tensor(random, workload, times, mix);
  for (std::int32_t rank = 0; rank < workload.shape.ranks(); ++rank) {
    if (chance(random, mix.early_closings)) workload.may_close.insert(rank);
  }
  return workload;
}

// No schedule needs so many actions: a job that has not finished by then never will.
constexpr int kMostActions = 200'000;

void run(HostsSimulation& simulation) {
  for (int i = 0; i < kMostActions && !simulation.over() && simulation.problem().empty(); ++i) {
    simulation.act();
  }
  simulation.check_end();
}

void run_many(std::uint64_t seeds, std::int64_t names, std::int64_t times, const HostsMix& mix) {
  seeds = seeds_of(seeds);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Random random(seed);
    const HostsWorkload workload = random_workload(random, names, times, mix);
    HostsSimulation simulation(workload, random);
    run(simulation);
    ASSERT_EQ(simulation.problem(), "")
        << "seed " << seed << ", " << workload.shape.text() << ", fan-in " << workload.fan_in
        << ", capacity " << workload.capacity << ", delay " << workload.longest_delay;
  }
}

TEST(ControlOverHosts, EveryCallIsExecutedOnceInTheSameOrderEverywhere) {
  run_many(300, 4, 5, HostsMix{});
}

TEST(ControlOverHosts, ChangedShapesAndDisagreementsComeOutTheSameEverywhere) {
  run_many(300, 4, 5, HostsMix{.shape_changes = 0.2, .disagreements = 0.2, .gathers = true});
}

TEST(ControlOverHosts, ManyNamesInASmallPlan) {
  run_many(200, 9, 4, HostsMix{.shape_changes = 0.05, .disagreements = 0.05});
}

TEST(ControlOverHosts, WhoWaitsIsAskedAtAnyTime) {
  run_many(200, 3, 6, HostsMix{.shape_changes = 0.1, .disagreements = 0.1, .stalls = 0.2});
}

TEST(ControlOverHosts, RanksCloseAtAnyTime) {
  run_many(500, 3, 5, HostsMix{.early_closings = 0.3});
}

TEST(ControlOverHosts, RanksCloseAtAnyTimeAmongAllElse) {
  run_many(500, 4, 4,
           HostsMix{.shape_changes = 0.2,
                    .disagreements = 0.2,
                    .early_closings = 0.3,
                    .stalls = 0.1,
                    .gathers = true});
}

TEST(ControlOverHosts, AWorkIsGivenUpAtAnyTime) {
  run_many(500, 4, 6,
           HostsMix{.shape_changes = 0.1, .disagreements = 0.1, .gives_up = 0.01, .gathers = true});
}

TEST(ControlOverHosts, ASteadyStepMovesNoNames) {
  constexpr std::int64_t kNames = 5;
  for (std::uint64_t seed = 1; seed <= seeds_of(100); ++seed) {
    Random random(seed);
    HostsWorkload workload = random_workload(random, kNames, 6, HostsMix{.gathers = true}, 2);
    workload.capacity = kNames;
    workload.close_together = true;
    HostsSimulation simulation(workload, random);
    run(simulation);
    ASSERT_EQ(simulation.problem(), "") << "seed " << seed;
    EXPECT_EQ(simulation.requests(), workload.shape.ranks() * kNames) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ronde::runtime
