// SPDX-License-Identifier: Apache-2.0
// The negotiation where ranks join with fewer submissions than others: under thousands of random
// schedules, and for the smallest jobs under every possible one, with a join at each point of a
// step, on each rank, and two at once. The promises are in negotiator_simulation.h.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/negotiate/negotiator.h"
#include "test/property/draws.h"
#include "test/property/negotiator_simulation.h"

namespace ronde::runtime {
namespace {

using Twister = std::mt19937_64;

// Tensors on which the ranks agree each time: some with rows of each rank, some from a root.
Workload workload_of_joins(Twister& random) {
  Workload workload;
  workload.ranks = base::narrow<std::int32_t>(draw(random, 1, 5));
  workload.capacity = chance(random, 0.5) ? 64 : draw(random, 1, 3);
  workload.limit = base::Bytes(chance(random, 0.5) ? 1 << 20 : draw(random, 1, 100));
  const std::int64_t names = draw(random, 1, 4);
  const std::int64_t times = draw(random, 1, 4);
  for (std::int64_t n = 0; n < names; ++n) {
    Signature signature;
    signature.op = base::ReduceOp::kSum;
    signature.shape = {draw(random, 1, 4), 3};
    switch (draw(random, 0, 5)) {
      case 0:
        signature.operation = Operation::kBroadcast;
        signature.root = base::narrow<std::int32_t>(draw(random, 0, workload.ranks - 1));
        break;
      case 1:
        signature.operation = Operation::kAllgather;
        break;
      case 2:
        signature.operation = Operation::kAllToAll;
        break;
      default:
        signature.operation = Operation::kAllreduce;
    }
    workload.signatures.emplace_back();
    for (std::int64_t k = 0; k < times; ++k) {
      if (chance(random, 0.2)) ++signature.shape[1];
      std::vector<Signature> of_ranks(static_cast<std::size_t>(workload.ranks), signature);
      if (row(signature.operation).makes_result()) {
        for (Signature& one : of_ranks) one.shape[0] = draw(random, 0, 3);
      }
      workload.signatures.back().push_back(std::move(of_ranks));
    }
    workload.disagree.emplace_back(static_cast<std::size_t>(times), false);
  }
  for (std::int32_t rank = 0; rank < workload.ranks; ++rank) {
    if (chance(random, 0.6)) workload.may_join.insert(rank);
  }
  workload.may_join.insert(base::narrow<std::int32_t>(draw(random, 0, workload.ranks - 1)));
  return workload;
}

// Joins are rare beside the rest, so that they can come at any time.
void run_joins(Twister& random, Simulation& simulation) {
  const auto slow = static_cast<Action::Kind>(draw(random, 0, 4));
  const double laziness = chance(random, 0.5) ? 0.9 : 0.0;
  while (simulation.problem().empty()) {
    const std::vector<Action> actions = simulation.possible();
    if (actions.empty()) break;
    const Action& action =
        actions[static_cast<std::size_t>(draw(random, 0, std::ssize(actions) - 1))];
    if (action.kind == Action::Kind::kJoin && actions.size() > 1 && chance(random, 0.8)) continue;
    if (action.kind == slow && actions.size() > 1 && chance(random, laziness)) continue;
    simulation.apply(action);
  }
  simulation.check_end();
}

TEST(NegotiatorJoins, WhateverComesWhenNothingIsLostAndAllJoinsEnd) {
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    Twister random(seed);
    const Workload workload = workload_of_joins(random);
    Simulation simulation(workload);
    simulation.slip_in_on_eviction(seed % 3 == 0);
    run_joins(random, simulation);
    ASSERT_EQ(simulation.problem(), "") << "seed " << seed << ", ranks " << workload.ranks
                                        << ", capacity " << workload.capacity << "\n"
                                        << simulation.trace();
  }
}

// All schedules of a small workload, depth first. The last action of a state goes on in the same
// simulation, and those before it in one that is played from its beginning.
class JoinSchedules {
 public:
  explicit JoinSchedules(Workload workload) : workload_(std::move(workload)) {}

  std::size_t visit_all() {
    Simulation simulation(workload_);
    std::vector<Action> schedule;
    visit(simulation, schedule);
    return seen_.size();
  }

 private:
  void visit(Simulation& simulation, std::vector<Action>& schedule) {
    if (::testing::Test::HasFatalFailure()) return;
    const bool broken = !simulation.problem().empty();
    if (!seen_.insert(std::hash<std::string>{}(simulation.key())).second && !broken) return;
    const std::vector<Action> actions = simulation.possible();
    if (actions.empty()) simulation.check_end();
    ASSERT_EQ(simulation.problem(), "") << simulation.trace();
    for (std::size_t i = 0; i < actions.size(); ++i) {
      schedule.push_back(actions[i]);
      if (i + 1 == actions.size()) {
        simulation.apply(actions[i]);
        visit(simulation, schedule);
      } else {
        Simulation again(workload_);
        for (const Action& action : schedule) again.apply(action);
        visit(again, schedule);
      }
      schedule.pop_back();
    }
  }

  Workload workload_;
  std::unordered_set<std::size_t> seen_;
};

Workload small_workload(std::int32_t ranks, std::int64_t capacity, std::vector<std::size_t> times,
                        std::set<std::int32_t> may_join) {
  Workload workload;
  workload.ranks = ranks;
  workload.capacity = capacity;
  workload.may_join = std::move(may_join);
  Signature signature;
  signature.shape = {4};
  for (const std::size_t count : times) {
    workload.signatures.emplace_back(
        count, std::vector<Signature>(static_cast<std::size_t>(ranks), signature));
    workload.disagree.emplace_back(count, false);
  }
  return workload;
}

TEST(NegotiatorJoins, EveryScheduleOfOneRank) {
  EXPECT_GT(JoinSchedules(small_workload(1, 1, {2, 1}, {0})).visit_all(), 50U);
}

TEST(NegotiatorJoins, EveryScheduleOfTwoRanksOfWhichEitherJoins) {
  EXPECT_GT(JoinSchedules(small_workload(2, 1, {2}, {0})).visit_all(), 100U);
  EXPECT_GT(JoinSchedules(small_workload(2, 1, {2}, {1})).visit_all(), 100U);
  EXPECT_GT(JoinSchedules(small_workload(2, 1, {1, 1}, {1})).visit_all(), 1000U);
}

TEST(NegotiatorJoins, EveryScheduleOfTwoRanksThatJoinAtOnce) {
  EXPECT_GT(JoinSchedules(small_workload(2, 1, {2}, {0, 1})).visit_all(), 1000U);
  EXPECT_GT(JoinSchedules(small_workload(2, 2, {1, 1}, {0, 1})).visit_all(), 1000U);
}

}  // namespace
}  // namespace ronde::runtime
