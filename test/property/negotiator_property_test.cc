// SPDX-License-Identifier: Apache-2.0
// The negotiation under thousands of random schedules and, for the smallest jobs, under every
// possible schedule: nothing is lost or executed twice, every rank executes the same, and only what
// is ready on all ranks; disagreements and closing ranks fail what they must and nothing else. The
// promises themselves are in negotiator_simulation.h.
#include <gtest/gtest.h>

#include <random>
#include <unordered_set>
#include <vector>

#include "runtime/negotiate/negotiator.h"
#include "test/property/draws.h"
#include "test/property/negotiator_simulation.h"

namespace ronde::runtime {
namespace {

using Random = std::mt19937_64;

struct Mix {
  double shape_changes = 0;  // on all ranks
  double disagreements = 0;  // on one rank
  bool rows = false;         // operations with rows, and groups
};

void change_shape(Signature& signature) {
  signature.shape.back() += 1;
  if (!signature.members.empty()) signature.members.back().shape[0] += 1;
}

// Changes the signature of one rank, in one of the ways in which ranks can disagree.
void spoil(Random& random, Signature& signature) {
  switch (draw(random, 0, 6)) {
    case 0:
      if (signature.members.empty()) signature.shape.push_back(2);
      if (!signature.members.empty()) signature.members[0].name += "x";
      break;
    case 1:
      signature.dtype = base::DType::kF64;
      break;
    case 2:
      signature.op = base::ReduceOp::kMax;
      signature.root = 1;
      // Each operation compares one of these.
      if (signature.operation == Operation::kAllgather ||
          signature.operation == Operation::kAllToAll) {
        signature.shape.push_back(7);
      }
      break;
    case 3:
      signature.operation = Operation::kBarrier;
      break;
    case 4:
      signature.prescale = 0.5;
      signature.device = 3;
      break;
    case 5:
      signature.postscale = 2.0;
      change_shape(signature);
      break;
    default:
      signature.device = 1;
  }
}

// Makes tensor n another operation than an allreduce, unlike the other tensors.
void become_special(Random& random, std::int64_t n, Signature& signature) {
  switch (draw(random, 0, 3)) {
    case 0:
      signature.operation = Operation::kAllgather;
      break;
    case 1:
      signature.operation = Operation::kAllToAll;
      break;
    case 2:
      signature.operation = Operation::kReduceScatter;
      if (chance(random, 0.5)) signature.splits = {signature.shape[0]};
      break;
    default:
      signature.operation = Operation::kAllreduce;
      signature.shape = {7};
      signature.members = {{"first" + std::to_string(n), {4}}, {"second", {3}}};
  }
}

Workload random_workload(Random& random, std::int64_t names, std::int64_t times, const Mix& mix) {
  Workload workload;
  workload.ranks = base::narrow<std::int32_t>(draw(random, 1, 5));
  const std::int64_t capacities[] = {1, 2, 3, 64};
  workload.capacity = capacities[draw(random, 0, 3)];
  workload.limit = base::Bytes(chance(random, 0.5) ? 1 << 20 : draw(random, 1, 100));
  for (std::int64_t n = 0; n < names; ++n) {
    Signature base;
    base.operation = Operation::kAllreduce;
    base.op = base::ReduceOp::kSum;
    base.shape = {draw(random, 1, 4), 3};
    base.priority = base::narrow<std::int32_t>(draw(random, 0, 2));
    if (chance(random, 0.2)) base.operation = Operation::kBroadcast;
    if (mix.rows && chance(random, 0.5)) become_special(random, n, base);
    workload.signatures.emplace_back();
    workload.disagree.emplace_back();
    std::vector<std::int64_t> rows;  // of an allgather, by rank
    for (std::int64_t k = 0; k < times; ++k) {
      const bool exchanges = base.operation == Operation::kAllToAll;
      if (chance(random, mix.shape_changes)) change_shape(base);
      // An all-to-all has other rows each time, and becomes an entry of the plan all the same.
      if (k == 0 || exchanges || chance(random, mix.shape_changes)) {
        rows.clear();
        for (std::int32_t r = 0; r < workload.ranks; ++r) rows.push_back(draw(random, 0, 4));
      }
      std::size_t rank = 0;
      const bool gathers = exchanges || base.operation == Operation::kAllgather;
      std::vector<Signature> of_ranks(static_cast<std::size_t>(workload.ranks), base);
      for (Signature& signature : of_ranks) {
        signature.shape[0] = gathers ? rows[rank++] : base.shape[0];
      }
      const bool disagree = workload.ranks > 1 && chance(random, mix.disagreements);
      if (disagree)
        spoil(random, of_ranks[static_cast<std::size_t>(draw(random, 0, workload.ranks - 1))]);
      workload.signatures.back().push_back(std::move(of_ranks));
      workload.disagree.back().push_back(disagree);
    }
  }
  return workload;
}

bool is_closing(const Action& action) {
  return action.kind == Action::Kind::kClose || action.kind == Action::Kind::kForce;
}

// Runs one schedule until it has finished. Closing is rare beside the rest, so that it can come at
// any time.
void run(Random& random, Simulation& simulation) {
  // Some schedules have few actions of one kind: a coordinator that lags, or ranks that read late.
  const auto slow = static_cast<Action::Kind>(draw(random, 0, 6));
  const double laziness = chance(random, 0.5) ? 0.9 : 0.0;
  for (;;) {
    const std::vector<Action> actions = simulation.possible();
    if (actions.empty() || !simulation.problem().empty()) break;
    bool only_closing = true;
    for (const Action& action : actions) only_closing = only_closing && is_closing(action);
    if (only_closing && chance(random, 0.5)) break;
    const Action& action =
        actions[static_cast<std::size_t>(draw(random, 0, std::ssize(actions) - 1))];
    if (!only_closing && is_closing(action) && chance(random, 0.9)) continue;
    if (action.kind == slow && actions.size() > 1 && chance(random, laziness)) continue;
    simulation.apply(action);
  }
  simulation.check_end();
}

// Runs thousands of schedules; `prepare` changes the workload before each.
template <typename Prepare>
void run_many(std::uint64_t seeds, std::int64_t names, std::int64_t times, const Mix& mix,
              bool slip_in, const Prepare& prepare) {
  seeds = seeds_of(seeds);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Random random(seed);
    Workload workload = random_workload(random, names, times, mix);
    prepare(random, workload);
    Simulation simulation(workload);
    simulation.slip_in_on_eviction(slip_in);
    run(random, simulation);
    ASSERT_EQ(simulation.problem(), "") << "seed " << seed << ", ranks " << workload.ranks
                                        << ", capacity " << workload.capacity << "\n"
                                        << simulation.trace();
  }
}

void as_it_is(Random& /*random*/, Workload& /*workload*/) {}

TEST(NegotiatorProperty, EverySubmissionIsExecutedOnceInTheSameOrderEverywhere) {
  run_many(1000, 4, 4, Mix{}, false, as_it_is);
}

TEST(NegotiatorProperty, ChangedShapesDisagreementsAndGathersComeOutTheSameEverywhere) {
  run_many(1000, 4, 5, Mix{0.2, 0.2, true}, false, as_it_is);
}

TEST(NegotiatorProperty, ManyTensorsInATinyPlan) {
  run_many(300, 12, 3, Mix{0.05, 0.05, true}, false,
           [](Random& random, Workload& workload) { workload.capacity = draw(random, 1, 3); });
}

TEST(NegotiatorProperty, EvictionLosesNoRankThatSlipsIn) {
  run_many(1000, 5, 4, Mix{0.1, 0.1, false}, true,
           [](Random& random, Workload& workload) { workload.capacity = draw(random, 1, 3); });
}

TEST(NegotiatorProperty, OneRankClosesAtAnyTime) {
  run_many(1500, 3, 4, Mix{0.1, 0.1, true}, false, [](Random& random, Workload& workload) {
    workload.may_close.insert(base::narrow<std::int32_t>(draw(random, 0, workload.ranks - 1)));
  });
}

TEST(NegotiatorProperty, AnyRanksCloseAtAnyTime) {
  run_many(1500, 3, 4, Mix{0.1, 0.1, true}, false, [](Random& random, Workload& workload) {
    for (std::int32_t rank = 0; rank < workload.ranks; ++rank) {
      if (chance(random, 0.6)) workload.may_close.insert(rank);
      if (chance(random, 0.3)) workload.may_force.insert(rank);
    }
  });
}

TEST(NegotiatorProperty, RanksCloseWhileOthersSlipInOnEvictions) {
  run_many(1000, 4, 4, Mix{}, true, [](Random& random, Workload& workload) {
    workload.capacity = draw(random, 1, 2);
    workload.may_close.insert(base::narrow<std::int32_t>(draw(random, 0, workload.ranks - 1)));
  });
}

TEST(NegotiatorProperty, ASteadyStepMovesNoNames) {
  constexpr std::int64_t kNames = 6;
  for (std::uint64_t seed = 1; seed <= seeds_of(500); ++seed) {
    Random random(seed);
    Workload workload = random_workload(random, kNames, 5, Mix{0, 0, true});
    workload.capacity = kNames;
    Simulation simulation(workload);
    run(random, simulation);
    ASSERT_EQ(simulation.problem(), "") << "seed " << seed << "\n" << simulation.trace();
    // Every rank sends each name once, and each name gets one entry; from then on the coordinator
    // sends batches only.
    EXPECT_EQ(simulation.requests(), workload.ranks * kNames) << "seed " << seed;
    std::int64_t binds = 0;
    for (const Decision& decision : simulation.log()) {
      if (std::holds_alternative<BatchDecision>(decision)) continue;
      EXPECT_TRUE(std::holds_alternative<BindDecision>(decision)) << "seed " << seed;
      ++binds;
    }
    EXPECT_EQ(binds, kNames) << "seed " << seed;
  }
}

// ---- every possible schedule ----

// Explores all schedules of a workload, depth first; a state that was seen before is not explored
// again. The negotiator cannot be copied, so each schedule is played from its beginning.
class Explorer {
 public:
  explicit Explorer(Workload workload, bool slip_in = false)
      : workload_(std::move(workload)), slip_in_(slip_in) {}

  std::size_t explore() {
    std::vector<Action> schedule;
    visit(schedule);
    return seen_.size();
  }

 private:
  void visit(std::vector<Action>& schedule) {
    if (::testing::Test::HasFatalFailure()) return;
    Simulation simulation(workload_);
    simulation.slip_in_on_eviction(slip_in_);
    for (const Action& action : schedule) simulation.apply(action);
    const bool broken = !simulation.problem().empty();
    if (!seen_.insert(std::hash<std::string>{}(simulation.key())).second && !broken) return;
    const std::vector<Action> actions = simulation.possible();
    bool quiet = true;
    for (const Action& action : actions) quiet = quiet && is_closing(action);
    if (quiet) simulation.check_end();
    ASSERT_EQ(simulation.problem(), "") << simulation.trace();
    for (const Action& action : actions) {
      schedule.push_back(action);
      visit(schedule);
      schedule.pop_back();
    }
  }

  Workload workload_;
  bool slip_in_;
  std::unordered_set<std::size_t> seen_;
};

// Returns a workload whose ranks agree on every tensor each time, until a test changes it.
Workload plain(std::int32_t ranks, std::int64_t capacity, std::vector<std::size_t> times) {
  Workload workload;
  workload.ranks = ranks;
  workload.capacity = capacity;
  Signature signature;
  signature.shape = {4};
  for (const std::size_t count : times) {
    workload.signatures.emplace_back(
        count, std::vector<Signature>(static_cast<std::size_t>(ranks), signature));
    workload.disagree.emplace_back(count, false);
  }
  return workload;
}

TEST(NegotiatorExhaustive, OneRankTwoTensorsTwoSteps) {
  EXPECT_GT(Explorer(plain(1, 1, {2, 2})).explore(), 100U);
  EXPECT_GT(Explorer(plain(1, 1, {2, 2}), true).explore(), 100U);
  EXPECT_GT(Explorer(plain(1, 2, {2, 2})).explore(), 100U);
}

TEST(NegotiatorExhaustive, TwoRanksOneTensorThreeSteps) {
  EXPECT_GT(Explorer(plain(2, 1, {3})).explore(), 50U);
}

TEST(NegotiatorExhaustive, TwoRanksTwoTensorsAroundAnEviction) {
  EXPECT_GT(Explorer(plain(2, 1, {2, 1})).explore(), 1000U);
  EXPECT_GT(Explorer(plain(2, 1, {2, 1}), true).explore(), 1000U);
}

TEST(NegotiatorExhaustive, TwoRanksChangeTheirMind) {
  Workload together = plain(2, 1, {3});
  for (Signature& signature : together.signatures[0][1]) signature.shape = {5};
  EXPECT_GT(Explorer(together).explore(), 100U);
  Workload apart = plain(2, 1, {3});
  apart.signatures[0][1][1].shape = {5};
  apart.disagree[0][1] = true;
  EXPECT_GT(Explorer(apart).explore(), 100U);
}

TEST(NegotiatorExhaustive, TwoRanksClose) {
  Workload one = plain(2, 2, {1, 1});
  one.may_close = {1};
  EXPECT_GT(Explorer(one).explore(), 1000U);
  Workload both = plain(2, 1, {2});
  both.may_close = {0, 1};
  EXPECT_GT(Explorer(both).explore(), 1000U);
  Workload forced = plain(2, 1, {2});
  forced.may_close = {0};
  forced.may_force = {0, 1};
  EXPECT_GT(Explorer(forced).explore(), 1000U);
}

TEST(NegotiatorExhaustive, ThreeRanksOfWhichTwoClose) {
  Workload workload = plain(3, 1, {1});
  workload.may_close = {0, 1};
  EXPECT_GT(Explorer(workload).explore(), 1000U);
}

}  // namespace
}  // namespace ronde::runtime
