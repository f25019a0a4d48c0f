// SPDX-License-Identifier: Apache-2.0
// Engines in one process do everything in cases.h: on hosts of every layout that the environment
// names (test/support/engines.h), and by every algorithm between hosts.
#include <gtest/gtest.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cfenv>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "test/conformance/drawn_cases.h"
#include "test/support/engines.h"

namespace ronde::conformance {
namespace {

using runtime::Engine;
using runtime::Submission;

Submission submission_of(Running& running, std::size_t tensor) {
  const Case& of = running.of();
  Submission submission;
  submission.name = of.is_group() ? of.name + ": " + std::to_string(tensor) : of.name;
  submission.place = "cases.h:1";
  submission.signature.operation = of.operation;
  submission.signature.dtype = of.dtype();
  submission.signature.op = of.what.op;
  submission.signature.shape = of.shape(tensor);
  submission.signature.root = of.root;
  submission.signature.prescale = of.what.prescale;
  submission.signature.postscale = of.what.postscale;
  submission.signature.compression = of.what.compression;
  submission.views[0].input = running.input(tensor);
  submission.views[0].output = running.output(tensor);
  submission.splits = of.splits;
  return submission;
}

// One operation that an engine has in flight.
struct InFlight {
  Engine::WorkPtr work;
  std::vector<std::unique_ptr<runtime::BoardBuffer>> boards;
};

InFlight start(Engine& engine, Running& running) {
  const Case& of = running.of();
  InFlight started;
  std::vector<Submission> submissions;
  for (std::size_t i = 0; i < of.tensors.size(); ++i) {
    submissions.push_back(submission_of(running, i));
  }
  for (std::size_t i = 0; of.memory == Case::Memory::kOnBoard && i < of.tensors.size(); ++i) {
    const Bytes& input = of.tensors[i].input;
    started.boards.push_back(engine.allocate(base::Bytes(std::ssize(input))).value());
    std::byte* const here = started.boards.back()->bytes().data();
    std::copy(input.begin(), input.end(), here);
    submissions[i].views[0].input = submissions[i].views[0].output = here;
  }
  auto submission = of.is_group() ? runtime::group_of(std::move(submissions))
                                  : base::Result<Submission>(std::move(submissions[0]));
  auto work = engine.submit(*std::move(submission));
  EXPECT_TRUE(work.ok()) << of.name << ": " << work.status().message();
  if (work.ok()) started.work = std::move(*work);
  return started;
}

void finish(Engine& engine, Running& running, const InFlight& started) {
  if (started.work == nullptr) return;
  const Case& of = running.of();
  const base::Status done = engine.wait(*started.work);
  ASSERT_TRUE(done.ok()) << of.name << ": " << done.message();
  for (std::size_t i = 0; i < started.boards.size(); ++i) {
    const auto board = started.boards[i]->bytes();
    std::copy_n(board.begin(), of.tensors[i].input.size(), running.output(i));
  }
  if (of.memory == Case::Memory::kResult) {
    const runtime::OutputBuffer& output = started.work->output;
    running.result.assign(output.data(), output.data() + output.size());
    running.received = started.work->received_splits;
    base::Shape shape = of.shape(0);
    shape[0] = std::ssize(of.tensors[0].expected) / base::size_of(of.dtype()) / of.width;
    EXPECT_EQ(started.work->output_shape, shape);
    EXPECT_EQ(started.work->output_dtype, of.dtype());
  }
  EXPECT_EQ(running.difference(), "") << of.name;
}

// A floating-point mode that a trainer may have set. Thread safety: affects its thread alone.
class UsersMode {
 public:
  explicit UsersMode(std::uint64_t which) {
    if (which % 3 == 1) std::fesetround(FE_UPWARD);
#if defined(__SSE2__)
    if (which % 3 == 2) _mm_setcsr(_mm_getcsr() | 0x8040U);  // subnormals are zero
#endif
  }
  UsersMode(const UsersMode&) = delete;
  UsersMode& operator=(const UsersMode&) = delete;
  ~UsersMode() { std::fesetenv(FE_DFL_ENV); }
};

// Ranks, and the algorithm; a named one makes every rank a host where all would share one.
class Engines : public ::testing::TestWithParam<std::tuple<int, const char*>> {
 protected:
  static int ranks() { return std::get<0>(GetParam()); }
  static std::string algorithm() {
    return std::string("RONDE_ALGORITHM=") + std::get<1>(GetParam());
  }
  static Hosts hosts() {
    const base::JobShape shape = testing::shape_of_environment(ranks());
    const bool alone = shape.hosts() == 1 && std::string(std::get<1>(GetParam())) != "auto";
    std::vector<std::int32_t> leaders;
    for (int rank = 0; rank < ranks(); ++rank) {
      leaders.push_back(alone ? rank : shape.leader_of(shape.host_of(rank)));
    }
    return hosts_of(leaders);
  }
};

TEST_P(Engines, DoEveryOperationAsTheOrderRuleSays) {
  testing::EngineOptions options;
  options.environment = {algorithm()};
  testing::run_job(ranks(), options, [&](int rank, Engine& engine) {
    const std::vector<Case> cases = Cases(hosts(), rank).all(301, 1 << 19);
    std::vector<Running> all;
    for (const Case& one : cases) all.emplace_back(one);
    for (int round = 0; round < 2; ++round) {  // by name, then by the plan
      std::vector<InFlight> works;
      for (Running& running : all) {
        running.prepare();
        works.push_back(start(engine, running));
      }
      for (std::size_t i = 0; i < all.size(); ++i) finish(engine, all[i], works[i]);
    }
    EXPECT_GT(engine.statistics().planned_requests, 0U);
  });
}

// Settings that must not change a bit; with some of them batches are cut and the plan is too small.
std::vector<std::string> any_settings(std::mt19937_64& random) {
  const auto any = [&](const std::string& name, const std::vector<std::string>& values) {
    return name + "=" + values[random() % values.size()];
  };
  return {any("RONDE_PIECE_BYTES", {"64", "192", "4096", "65536"}),
          any("RONDE_STORES", {"temporal", "streaming"}),
          any("RONDE_BATCH_BYTES", {"1", "4096", "20000", "67108864"}),
          any("RONDE_SEGMENT_BYTES", {"64", "256", "4096", "131072"}),
          any("RONDE_PLAN_CAPACITY", {"8", "1000"}),
          any("RONDE_LINGER_SECONDS", {"0", "0.002"}),
          any("RONDE_SPIN_SECONDS", {"0", "0.00005"})};
}

// Several threads of each rank share the operations, each rank's otherwise, and submit and await
// them in orders of their own, in whichever floating-point mode.
TEST_P(Engines, DoWhatIsDrawnInWhicheverOrder) {
  constexpr int kThreads = 3;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    std::mt19937_64 of_job(seed);
    testing::EngineOptions options;
    options.environment = any_settings(of_job);
    options.environment.push_back(algorithm());
    options.faults = {.seed = seed, .max_delay = seed % 2 == 0 ? 5 : 0};
    testing::run_job(ranks(), options, [&](int rank, Engine& engine) {
      const std::vector<Case> cases = DrawnCases(hosts(), rank, seed, {16, 64, 300, 3000}).make(40);
      std::vector<Running> all;
      for (const Case& one : cases) all.emplace_back(one);
      testing::on_ranks(kThreads, [&](int thread) {
        std::mt19937_64 random(seed * 100 + static_cast<std::uint64_t>(rank * 10 + thread));
        const UsersMode mode(random());
        std::vector<std::size_t> mine;
        for (std::size_t i = 0; i < all.size(); ++i) {
          const auto turn = (i + static_cast<std::size_t>(rank)) % kThreads;
          if (std::cmp_equal(turn, thread) && !cases[i].tensors.empty()) mine.push_back(i);
        }
        for (int step = 0; step < 3; ++step) {
          std::vector<InFlight> works(all.size());
          std::ranges::shuffle(mine, random);
          for (const std::size_t i : mine) {
            all[i].prepare();
            works[i] = start(engine, all[i]);
            if (random() % 4 == 0) std::this_thread::yield();
          }
          std::ranges::shuffle(mine, random);
          for (const std::size_t i : mine) finish(engine, all[i], works[i]);
        }
      });
    });
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<int, const char*>>& one) {
  return std::string(std::get<1>(one.param)) + "At" + std::to_string(std::get<0>(one.param));
}
INSTANTIATE_TEST_SUITE_P(Alone, Engines, ::testing::Values(std::tuple(1, "auto")), name_of);
INSTANTIATE_TEST_SUITE_P(Together, Engines,
                         ::testing::Combine(::testing::Values(2, 3, 5),
                                            ::testing::Values("auto", "ring", "direct", "gather")),
                         name_of);

}  // namespace
}  // namespace ronde::conformance
