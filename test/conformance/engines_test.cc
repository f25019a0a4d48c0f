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
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "test/conformance/drawn_cases.h"
#include "test/conformance/engine_cases.h"
#include "test/support/engines.h"

namespace ronde::conformance {
namespace {

using runtime::Engine;

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
  OnceForAll once;
  testing::run_job(ranks(), options, [&](int rank, Engine& engine) {
    const std::vector<Case> cases =
        Cases(hosts(), rank, 1, Numbers::kTelling, &once).all(301, 1 << 19);
    EXPECT_EQ(do_all(engine, rank, cases, {}), "");
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
    OnceForAll once;
    testing::run_job(ranks(), options, [&](int rank, Engine& engine) {
      const std::vector<Case> cases =
          DrawnCases(hosts(), rank, seed, {16, 64, 300, 3000}, &once).make(40);
      std::vector<EngineCase> all;
      for (const Case& one : cases) all.emplace_back(one, Precision::kExact);
      testing::on_ranks(kThreads, [&](int thread) {
        std::mt19937_64 random(seed * 100 + static_cast<std::uint64_t>(rank * 10 + thread));
        const UsersMode mode(random());
        std::vector<std::size_t> mine;
        for (std::size_t i = 0; i < all.size(); ++i) {
          const auto turn = (i + static_cast<std::size_t>(rank)) % kThreads;
          if (std::cmp_equal(turn, thread) && !cases[i].tensors.empty()) mine.push_back(i);
        }
        for (int step = 0; step < 3; ++step) {
          std::ranges::shuffle(mine, random);
          for (const std::size_t i : mine) {
            EXPECT_EQ(all[i].start(engine, Place::kHost), "") << cases[i].name;
            if (random() % 4 == 0) std::this_thread::yield();
          }
          std::ranges::shuffle(mine, random);
          for (const std::size_t i : mine) {
            EXPECT_EQ(all[i].finish(engine), "") << cases[i].name;
          }
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
