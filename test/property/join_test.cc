// SPDX-License-Identifier: Apache-2.0
// Ranks with other numbers of steps, in the job and in process sets of it side by side: whole
// engines, on hosts of every layout, against a serial oracle, until one dies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "runtime/engine/engine.h"
#include "test/property/join_call.h"
#include "test/property/join_program.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using testing::EnginePtr;

// Where a rank of a set stops, which then dies: before this step of this round.
struct Stop {
  int rank = -1;  // of the set; -1: none
  int round = 0;
  int step = 0;

  // Whether what has been submitted as this needs more of that rank than it did, if only its join.
  [[nodiscard]] bool forbids(const Program& program, int round_of, std::size_t tensor,
                             int step_of) const {
    if (round_of != round || !forbids_join(round_of)) return forbids_join(round_of);
    return step_of >= step || program.count(round_of, tensor, rank) <= step_of;
  }
  [[nodiscard]] bool forbids_join(int round_of) const { return rank >= 0 && round_of >= round; }
};

int steps_of(const Program& program, int round, int rank) {
  int steps = 0;
  for (std::size_t x = 0; x < program.kinds.size(); ++x) {
    steps = std::max(steps, program.count(round, x, rank));
  }
  return steps;
}

// That of a rank which does so many steps, or all.
Stop stop_after(int steps, const Program& program, int rank) {
  Stop stop{rank, 0, steps};
  if (rank < 0) return stop;
  for (; stop.round < program.rounds; ++stop.round) {
    const int more = steps_of(program, stop.round, rank);
    if (stop.step < more) break;
    stop.step -= more;
  }
  return stop;
}

// The error of what fails because that rank has died.
bool names_dead(const base::Status& status, int rank) {
  const std::string text = "rank " + std::to_string(rank) + " ended its process";
  return rank >= 0 && status.code() == base::Code::kPeerFailed && status.rank() == rank &&
         status.message().find(text) != std::string::npos;
}

// What the ranks of a set do, of which the first is the job itself.
struct JointSet {
  std::vector<std::int32_t> ranks;  // of the job
  Program program;
  Stop stop{};

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
  if (!with_sets || below(4) != 0) return joint;
  joint.dies = below(ranks);
  for (JointSet& set : joint.sets) {
    set.stop = stop_after(below(4), set.program, set.number_of(joint.dies));
  }
  return joint;
}

// What a rank does in the job, or in one set: the calls of a step in flight together in any order;
// joins while some still are.
class JointRun {
 public:
  // dies: the rank of the job that dies; -1: none.
  JointRun(const JointSet& set, int rank, Engine& engine, std::uint64_t seed, int dies)
      : program_(set.program),
        stop_(set.stop),
        rank_(rank),
        engine_(engine),
        random_(seed),
        dies_(dies) {}

  void run() {
    for (int round = 0; round < program_.rounds; ++round) {
      if (!run_steps(round)) return;
      // Two ranks that wait for what each alone submits would wait for ever.
      const bool whole = program_.whole_steps[static_cast<std::size_t>(round)];
      if (whole && random_() % 2 == 0) finish_all();
      const auto join = engine_.join(random_() % 2 == 0);
      note(join.status(), false);
      if (!join.ok()) return;
      const base::Status joined = engine_.wait(**join);
      note(joined, stop_.forbids_join(round));
      if (joined.ok()) lasts_.push_back((*join)->last_joined);
      finish_all();
    }
  }
  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  [[nodiscard]] const std::vector<std::int32_t>& lasts() const { return lasts_; }

 private:
  // False: this rank dies here, with calls in flight.
  bool run_steps(int round) {
    for (int step = 0; step < steps_of(program_, round, rank_); ++step) {
      if (rank_ == stop_.rank && round == stop_.round && step == stop_.step) return false;
      finish_all();
      std::vector<std::size_t> order(program_.kinds.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::shuffle(order, random_);
      for (const std::size_t x : order) {
        if (program_.count(round, x, rank_) <= step) continue;
        calls_.emplace_back(program_, rank_, round, x, step);
        const base::Status started = calls_.back().start(engine_);
        note(started, false);
        if (started.ok()) {
          open_.emplace_back(&calls_.back(), stop_.forbids(program_, round, x, step));
        }
      }
    }
    return true;
  }
  void finish_all() {
    std::ranges::shuffle(open_, random_);
    for (const auto& [call, forbidden] : open_) note(call->finish(engine_, wrong_), forbidden);
    open_.clear();
  }
  // forbidden: it cannot be done without the rank that dies. That one itself hears of no failure.
  void note(const base::Status& status, bool forbidden) {
    if (status.ok() && forbidden) wrong_ += "done without the rank that died; ";
    if (status.ok() || (rank_ != stop_.rank && names_dead(status, dies_))) return;
    wrong_ += status.message() + "; ";
  }

  const Program& program_;
  const Stop stop_;
  const int rank_;
  Engine& engine_;
  std::mt19937_64 random_;
  const int dies_;
  std::deque<JoinCall> calls_;                    // until the engine has closed
  std::vector<std::pair<JoinCall*, bool>> open_;  // forbidden: as in note()
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
    if (joint_.dies == rank_) return die();
    close();
  }
  // Who joined last in each set, by round.
  [[nodiscard]] const std::vector<std::vector<std::int32_t>>& lasts() const { return lasts_; }

 private:
  // It succeeds, or somebody had died.
  void expect_end(const base::Status& status) const {
    EXPECT_TRUE(status.ok() || names_dead(status, joint_.dies)) << status.message();
  }
  void expect_failed(const base::Status& status) const {
    EXPECT_TRUE(names_dead(status, joint_.dies)) << status.message();
  }

  void run_in(std::size_t set) {
    const JointSet& mine = joint_.sets[set];
    if (set > 0) {
      auto opened = job_.subset(mine.ranks, "set " + std::to_string(set));
      expect_end(opened.status());
      if (!opened.ok()) return;
      engines_[set] = *std::move(opened);
    }
    Engine& engine = set == 0 ? job_ : *engines_[set];
    runs_[set] = std::make_unique<JointRun>(mine, mine.number_of(rank_), engine, seed_ * 10 + set,
                                            joint_.dies);
    runs_[set]->run();
    EXPECT_EQ(runs_[set]->wrong(), "") << "rank " << rank_ << " in set " << set;
    lasts_[set] = runs_[set]->lasts();
  }
  // While a message is in flight: a barrier would be done where all others have joined.
  void die() {
    std::byte never{};
    MessageRequest message{.rank = (rank_ + 1) % job_.size(), .dtype = base::DType::kU8};
    message.count = 1;
    message.memory = &never;
    EXPECT_TRUE(job_.receive(message).ok());
    job_.close_at_exit();
  }
  void close() {
    for (const EnginePtr& set : engines_) {
      if (set == nullptr) continue;
      expect_end(set->close());
    }
    const auto end = job_.submit(testing::barrier_of("end"));
    const base::Status ended = end.ok() ? job_.wait(**end) : end.status();
    const base::Status closed = job_.close();
    for (const base::Status& status : {ended, closed}) {
      joint_.dies < 0 ? expect_end(status) : expect_failed(status);
    }
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

// Each instance runs so many programs. A sanitizer runs fewer, since all run the same lines.
std::uint64_t seeds_of_joins() {
  const char* const wanted = std::getenv("RONDE_JOIN_SEEDS");
  return base::parse_number<std::uint64_t>(wanted == nullptr ? "" : wanted).value_or(200);
}

TEST_P(Joins, WhatIsLeftGoesOnInTheJobAndInSetsOfItUntilARankDies) {
  const std::uint64_t seeds = seeds_of_joins();
  for (std::uint64_t i = 0; i < seeds && !HasFailure(); ++i) {
    expect_right(static_cast<std::uint64_t>(GetParam()) * 200 + i, true, {});
  }
}

TEST_P(Joins, TheSameWithASmallPlanAndSmallBatches) {
  const std::uint64_t seeds = seeds_of_joins();
  for (std::uint64_t i = 0; i < seeds && !HasFailure(); ++i) {
    expect_right(100'000 + static_cast<std::uint64_t>(GetParam()) * 200 + i, false,
                 {"RONDE_PLAN_CAPACITY=2", "RONDE_BATCH_BYTES=1000", "RONDE_SEGMENT_BYTES=256"});
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Joins, ::testing::Range(0, 5));

}  // namespace
}  // namespace ronde::runtime
