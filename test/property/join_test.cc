// SPDX-License-Identifier: Apache-2.0
// Ranks with other numbers of steps, in the job and in process sets of it side by side: whole
// engines, on hosts of every layout, against a serial oracle, until one dies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/property/join_call.h"
#include "test/property/join_program.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using testing::EnginePtr;

// What the ranks of a set do, of which the first is the job itself.
struct JointSet {
  std::vector<std::int32_t> ranks;  // of the job
  Program program;

  // -1: it is not in it.
  [[nodiscard]] int number_of(int rank) const {
    const auto found = std::ranges::find(ranks, rank);
    return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
  }
};

struct JointProgram {
  std::vector<JointSet> sets;
  base::JobShape shape;
  int dies = -1;
};

JointProgram draw_joint_program(std::mt19937_64& random, bool with_sets) {
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(limit));
  };
  JointSet job;
  const int ranks = with_sets ? 2 + below(5) : 1 + below(6);
  for (int rank = 0; rank < ranks; ++rank) job.ranks.push_back(rank);
  job.program = draw_program(random, ranks);
  JointProgram joint{{std::move(job)}, draw_shape(random, ranks), -1};
  for (int set = with_sets ? 1 + below(3) : 0; set > 0; --set) {
    JointSet some;
    for (int rank = 0; rank < ranks; ++rank) {
      if (below(3) > 0) some.ranks.push_back(rank);
    }
    if (some.ranks.empty()) some.ranks.push_back(below(ranks));
    some.program = draw_program(random, static_cast<int>(some.ranks.size()));
    joint.sets.push_back(std::move(some));
  }
  if (with_sets && below(4) == 0) joint.dies = below(ranks);
  return joint;
}

// What a rank does in the job, or in one set: the calls of a step in flight together in any order;
// joins while some still are.
class JointRun {
 public:
  // fails: a rank dies, so that calls may fail. dies: this one, before some step.
  JointRun(const Program& program, int rank, Engine& engine, std::uint64_t seed, bool fails,
           bool dies)
      : program_(program), rank_(rank), engine_(engine), random_(seed), fails_(fails) {
    if (dies) steps_left_ = static_cast<int>(random_() % 4);
  }

  void run() {
    for (int round = 0; round < program_.rounds; ++round) {
      if (!run_steps(round)) return;
      // Two ranks that wait for what each alone submits would wait for ever.
      const bool whole = program_.whole_steps[static_cast<std::size_t>(round)];
      if (whole && random_() % 2 == 0) finish_all();
      const auto join = engine_.join(random_() % 2 == 0);
      note(join.status());
      if (!join.ok()) return;
      const base::Status joined = engine_.wait(**join);
      note(joined);
      if (joined.ok()) lasts_.push_back((*join)->last_joined);
      finish_all();
    }
  }
  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  [[nodiscard]] const std::vector<std::int32_t>& lasts() const { return lasts_; }

 private:
  // False: this rank dies here, with calls in flight.
  bool run_steps(int round) {
    int steps = 0;
    for (std::size_t x = 0; x < program_.kinds.size(); ++x) {
      steps = std::max(steps, program_.count(round, x, rank_));
    }
    for (int step = 0; step < steps; ++step) {
      if (steps_left_-- == 0) return false;
      finish_all();
      std::vector<std::size_t> order(program_.kinds.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::shuffle(order, random_);
      for (const std::size_t x : order) {
        if (program_.count(round, x, rank_) <= step) continue;
        calls_.emplace_back(program_, rank_, round, x, step);
        open_.push_back(&calls_.back());
        note(open_.back()->start(engine_));
      }
    }
    return true;
  }
  void finish_all() {
    std::ranges::shuffle(open_, random_);
    for (JoinCall* const call : open_) note(call->finish(engine_, wrong_));
    open_.clear();
  }
  void note(const base::Status& status) {
    if (status.ok() || (fails_ && status.code() == base::Code::kPeerFailed)) return;
    wrong_ += status.message() + "; ";
  }

  const Program& program_;
  const int rank_;
  Engine& engine_;
  std::mt19937_64 random_;
  const bool fails_;
  int steps_left_ = -1;
  std::deque<JoinCall> calls_;  // until the engine has closed
  std::vector<JoinCall*> open_;
  std::vector<std::int32_t> lasts_;
  std::string wrong_;
};

class JointRank {
 public:
  JointRank(const JointProgram& joint, int rank, Engine& job, std::uint64_t seed)
      : joint_(joint),
        rank_(rank),
        job_(job),
        seed_(seed * 100 + static_cast<std::uint64_t>(rank)) {}

  // One thread for each set, so that they are opened and used in any order.
  void run() {
    lasts_.resize(joint_.sets.size());
    engines_.resize(joint_.sets.size());
    runs_.resize(joint_.sets.size());
    std::vector<std::thread> threads;
    for (std::size_t set = 0; set < joint_.sets.size(); ++set) {
      if (joint_.sets[set].number_of(rank_) < 0) continue;
      threads.emplace_back([this, set] { run_in(set); });
    }
    for (std::thread& thread : threads) thread.join();
    if (joint_.dies == rank_) {
      static_cast<void>(job_.submit(testing::barrier_of("never")));
      return job_.close_at_exit();
    }
    close();
  }
  // Who joined last in each set, by round.
  [[nodiscard]] const std::vector<std::vector<std::int32_t>>& lasts() const { return lasts_; }

 private:
  [[nodiscard]] bool may_fail() const { return joint_.dies >= 0; }

  void run_in(std::size_t set) {
    const JointSet& mine = joint_.sets[set];
    if (set > 0) {
      auto opened = job_.subset(mine.ranks, "set " + std::to_string(set));
      EXPECT_TRUE(opened.ok() || may_fail()) << opened.status().message();
      if (!opened.ok()) return;
      engines_[set] = *std::move(opened);
    }
    Engine& engine = set == 0 ? job_ : *engines_[set];
    runs_[set] = std::make_unique<JointRun>(mine.program, mine.number_of(rank_), engine,
                                            seed_ * 10 + set, may_fail(), joint_.dies == rank_);
    runs_[set]->run();
    EXPECT_EQ(runs_[set]->wrong(), "") << "rank " << rank_ << " in set " << set;
    lasts_[set] = runs_[set]->lasts();
  }
  void close() {
    for (const EnginePtr& set : engines_) {
      if (set == nullptr) continue;
      const base::Status closed = set->close();
      EXPECT_TRUE(closed.ok() || may_fail()) << closed.message();
    }
    const auto end = job_.submit(testing::barrier_of("end"));
    const base::Status ended = end.ok() ? job_.wait(**end) : end.status();
    EXPECT_TRUE(ended.ok() || may_fail()) << ended.message();
    const base::Status closed = job_.close();
    EXPECT_TRUE(closed.ok() || may_fail()) << closed.message();
  }

  const JointProgram& joint_;
  const int rank_;
  Engine& job_;
  const std::uint64_t seed_;
  std::vector<std::unique_ptr<JointRun>> runs_;
  std::vector<EnginePtr> engines_;
  std::vector<std::vector<std::int32_t>> lasts_;
};

void expect_same_lasts(const JointProgram& joint,
                       const std::vector<std::vector<std::vector<std::int32_t>>>& lasts) {
  for (std::size_t set = 0; set < joint.sets.size(); ++set) {
    const JointSet& members = joint.sets[set];
    const auto& first = lasts[static_cast<std::size_t>(members.ranks.front())][set];
    for (const std::int32_t rank : members.ranks) {
      EXPECT_EQ(lasts[static_cast<std::size_t>(rank)][set], first);
    }
    for (const std::int32_t last : first) {
      EXPECT_TRUE(last >= 0 && last < std::ssize(members.ranks));
    }
  }
}

void expect_right(std::uint64_t seed, bool with_sets, const std::vector<std::string>& environment) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const JointProgram joint = draw_joint_program(random, with_sets);
  testing::EngineOptions options;
  options.environment = environment;
  // One that waits for ever fails.
  options.environment.emplace_back("RONDE_STALL_WARNING_SECONDS=5");
  options.environment.emplace_back("RONDE_STALL_FAILURE_SECONDS=10");
  options.shape = joint.shape;
  const auto ranks = static_cast<int>(joint.sets.front().ranks.size());
  std::vector<std::vector<std::vector<std::int32_t>>> lasts(static_cast<std::size_t>(ranks));
  const auto engines = testing::open_engines(ranks, options);
  testing::on_ranks(ranks, [&](int rank) {
    JointRank mine(joint, rank, *engines[static_cast<std::size_t>(rank)], seed);
    mine.run();
    lasts[static_cast<std::size_t>(rank)] = mine.lasts();
  });
  if (joint.dies < 0) expect_same_lasts(joint, lasts);
}

class Joins : public ::testing::TestWithParam<int> {};

constexpr std::uint64_t kSeeds = 200;  // of each instance

TEST_P(Joins, WhatIsLeftGoesOnInTheJobAndInSetsOfItUntilARankDies) {
  for (std::uint64_t i = 0; i < kSeeds && !HasFailure(); ++i) {
    expect_right(static_cast<std::uint64_t>(GetParam()) * kSeeds + i, true, {});
  }
}

TEST_P(Joins, TheSameWithASmallPlanAndSmallBatches) {
  for (std::uint64_t i = 0; i < kSeeds && !HasFailure(); ++i) {
    expect_right(100'000 + static_cast<std::uint64_t>(GetParam()) * kSeeds + i, false,
                 {"RONDE_PLAN_CAPACITY=2", "RONDE_BATCH_BYTES=1000", "RONDE_SEGMENT_BYTES=256"});
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Joins, ::testing::Range(0, 5));

}  // namespace
}  // namespace ronde::runtime
