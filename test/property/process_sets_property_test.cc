// SPDX-License-Identifier: Apache-2.0
// Random programs of process sets: which ranks, on which hosts, in which order they open, use and
// close them, and a rank that dies. Every result is compared with what one loop over the ranks
// says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/job_shape.h"
#include "runtime/engine/engine.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using testing::barrier_of;
using testing::EnginePtr;

using SetTwister = std::mt19937;

int number_below(SetTwister& random, int count) {
  return static_cast<int>(random() % static_cast<std::uint32_t>(count));
}

// How many programs there are, more of them where it is asked for.
std::uint32_t seeds_of_sets() {
  const char* const wanted = std::getenv("RONDE_SET_SEEDS");
  return wanted == nullptr ? 60U : static_cast<std::uint32_t>(std::atoi(wanted));
}

struct SetCall {
  std::size_t set = 0;  // 0: the whole job
  std::string name;
  Operation operation{};
  std::size_t length = 0;
  std::int32_t root = 0;  // in the set
};

struct SetProgram {
  int ranks = 2;
  base::JobShape shape = base::JobShape::one_host(1);
  std::vector<std::vector<std::int32_t>> sets;  // by set, ranks of the job; the first has all
  std::vector<SetCall> calls;
  int rounds = 1;  // in each of which the sets are opened anew
  int dies = -1;
};

SetProgram set_program_of(std::uint32_t seed) {
  SetTwister random(seed);
  SetProgram program;
  program.ranks = 2 + number_below(random, 5);
  const int hosts = 1 + number_below(random, 3);
  std::vector<std::int32_t> leaders;
  std::vector<std::int32_t> first(static_cast<std::size_t>(hosts), -1);
  program.sets.emplace_back();
  for (int rank = 0; rank < program.ranks; ++rank) {
    auto& leader = first[static_cast<std::size_t>(number_below(random, hosts))];
    if (leader < 0) leader = rank;
    leaders.push_back(leader);
    program.sets.front().push_back(rank);
  }
  program.shape = base::JobShape::of_leaders(leaders).value();
  for (int set = 1 + number_below(random, 4); set > 0; --set) {
    std::vector<std::int32_t> members;
    for (int rank = 0; rank < program.ranks; ++rank) {
      if (number_below(random, 3) > 0) members.push_back(rank);
    }
    if (members.empty()) members.push_back(number_below(random, program.ranks));
    program.sets.push_back(std::move(members));
  }
  const Operation operations[] = {Operation::kAllreduce, Operation::kBroadcast,
                                  Operation::kAllgather, Operation::kBarrier};
  for (int call = 5 + number_below(random, 25); call > 0; --call) {
    const auto set =
        static_cast<std::size_t>(number_below(random, static_cast<int>(program.sets.size())));
    const auto size = static_cast<int>(program.sets[set].size());
    const std::size_t length = std::size_t{1} << number_below(random, 16);
    program.calls.push_back({set, "t" + std::to_string(call), operations[number_below(random, 4)],
                             length + static_cast<std::size_t>(number_below(random, 5)),
                             number_below(random, size)});
  }
  program.rounds = 1 + number_below(random, 3);
  if (number_below(random, 4) == 0) program.dies = number_below(random, program.ranks);
  return program;
}

float value_of(const SetCall& call, std::int32_t rank_of_job, std::size_t i) {
  return static_cast<float>(rank_of_job + 1) * static_cast<float>((i + call.length) % 7 + 1);
}

// One call of one rank.
struct Pending {
  const SetCall* call = nullptr;
  Engine* engine = nullptr;
  std::vector<float> data{};
  Engine::WorkPtr work{};
};

void expect_right(const Pending& pending, const std::vector<std::int32_t>& ranks) {
  const SetCall& call = *pending.call;
  if (call.operation == Operation::kBarrier) return;
  const std::size_t length = call.length;
  if (call.operation == Operation::kAllgather) {
    const auto* const all = reinterpret_cast<const float*>(pending.work->output.data());
    ASSERT_EQ(pending.work->output.size(), ranks.size() * length * sizeof(float));
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      for (std::size_t i = 0; i < length; i += 97) {
        ASSERT_EQ(all[r * length + i], value_of(call, ranks[r], i)) << call.name;
      }
    }
    return;
  }
  for (std::size_t i = 0; i < length; ++i) {
    float expected = 0;
    for (const std::int32_t rank : ranks) expected += value_of(call, rank, i);
    if (call.operation == Operation::kBroadcast) {
      expected = value_of(call, ranks[static_cast<std::size_t>(call.root)], i);
    }
    ASSERT_EQ(pending.data[i], expected) << call.name << " at " << i;
  }
}

Submission submission_of(Pending& pending) {
  const SetCall& call = *pending.call;
  switch (call.operation) {
    case Operation::kAllreduce:
      return testing::allreduce_of(call.name, pending.data);
    case Operation::kBroadcast:
      return testing::broadcast_of(call.name, pending.data, call.root);
    case Operation::kAllgather:
      return testing::allgather_of(call.name, pending.data);
    default:
      return barrier_of(call.name);
  }
}

class RandomProgram {
 public:
  explicit RandomProgram(std::uint32_t seed) : seed_(seed), program_(set_program_of(seed)) {}

  void run() {
    testing::EngineOptions options;
    options.shape = program_.shape;
    const auto engines = testing::open_engines(program_.ranks, options);
    testing::on_ranks(program_.ranks, [&](int rank) {
      Engine& engine = *engines[static_cast<std::size_t>(rank)];
      SetTwister random(seed_ * 64 + static_cast<std::uint32_t>(rank));
      for (int round = 0; round < program_.rounds; ++round) {
        if (!run_round(rank, round, engine, random)) break;
      }
      // Whoever leaves while others still open sets is missed.
      if (program_.dies < 0) {
        const auto end = engine.submit(barrier_of("end"));
        ASSERT_TRUE(end.ok() && engine.wait(**end).ok());
      }
      const base::Status closed = engine.close();
      EXPECT_TRUE(closed.ok() || program_.dies >= 0) << closed.message();
    });
  }

 private:
  [[nodiscard]] bool has(std::size_t set, std::int32_t rank) const {
    const auto& ranks = program_.sets[set];
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }
  // A rank may be a round ahead of others when it dies.
  [[nodiscard]] bool may_fail() const { return program_.dies >= 0; }

  // Every set is opened by a thread of its own, so that ranks open them in any order.
  std::vector<EnginePtr> open_sets(std::int32_t rank, Engine& engine) {
    std::vector<EnginePtr> sets(program_.sets.size());
    std::vector<std::thread> threads;
    for (std::size_t set = 1; set < sets.size(); ++set) {
      if (!has(set, rank)) continue;
      threads.emplace_back([&, set] {
        auto opened = engine.subset(program_.sets[set], "set" + std::to_string(set));
        EXPECT_TRUE(opened.ok() || may_fail()) << opened.status().message();
        if (opened.ok()) sets[set] = std::move(*opened);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return sets;
  }

  // False: this rank is dead.
  bool run_round(std::int32_t rank, int round, Engine& engine, SetTwister& random) {
    std::vector<EnginePtr> sets = open_sets(rank, engine);
    std::vector<const SetCall*> calls;
    for (const SetCall& call : program_.calls) {
      if (has(call.set, rank)) calls.push_back(&call);
    }
    std::shuffle(calls.begin(), calls.end(), random);
    std::vector<std::unique_ptr<Pending>> pendings;
    const bool dies = program_.dies == rank && round == program_.rounds - 1;
    const std::size_t last = dies ? calls.size() / 2 : calls.size();
    for (std::size_t i = 0; i < last; ++i) submit(*calls[i], rank, engine, sets, pendings);
    if (dies) {
      static_cast<void>(engine.submit(barrier_of("never")));
      engine.close_at_exit();
      for (const auto& pending : pendings) EXPECT_TRUE(pending->work->completion.done());
      return false;
    }
    std::shuffle(pendings.begin(), pendings.end(), random);
    for (const auto& pending : pendings) finish(*pending);
    if (number_below(random, 2) == 0) std::shuffle(sets.begin(), sets.end(), random);
    for (const EnginePtr& set : sets) {
      if (set == nullptr) continue;
      const base::Status closed = set->close();
      EXPECT_TRUE(closed.ok() || may_fail()) << closed.message();
    }
    return true;
  }

  void submit(const SetCall& call, std::int32_t rank, Engine& engine,
              const std::vector<EnginePtr>& sets,
              std::vector<std::unique_ptr<Pending>>& pendings) const {
    Engine* const set = call.set == 0 ? &engine : sets[call.set].get();
    if (set == nullptr) return;  // the job has failed
    auto pending = std::make_unique<Pending>(Pending{&call, set});
    for (std::size_t i = 0; i < call.length; ++i) {
      pending->data.push_back(value_of(call, rank, i));
    }
    auto work = set->submit(submission_of(*pending));
    ASSERT_TRUE(work.ok() || may_fail()) << work.status().message();
    if (!work.ok()) return;
    pending->work = std::move(*work);
    pendings.push_back(std::move(pending));
  }

  void finish(const Pending& pending) const {
    const base::Status done = pending.engine->wait(*pending.work);
    if (done.ok()) return expect_right(pending, program_.sets[pending.call->set]);
    EXPECT_TRUE(may_fail()) << done.message();
    EXPECT_EQ(done.code(), base::Code::kPeerFailed) << done.message();
  }

  const std::uint32_t seed_;
  const SetProgram program_;
};

class ProcessSetsProperty : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(ProcessSetsProperty, DoWhatOneLoopOverTheRanksSays) {
  constexpr std::uint32_t kParts = 4;
  for (std::uint32_t seed = GetParam(); seed < seeds_of_sets(); seed += kParts) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram(seed).run();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, ProcessSetsProperty, ::testing::Values(0U, 1U, 2U, 3U));

}  // namespace
}  // namespace ronde::runtime
