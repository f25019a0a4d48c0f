// SPDX-License-Identifier: Apache-2.0
// Engines in one process do everything in cases.h: on hosts of every layout that the environment
// names (test/support/engines.h), and by every algorithm between hosts.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "test/conformance/engine_cases.h"
#include "test/support/engines.h"

namespace ronde::conformance {
namespace {

// Ranks, and the algorithm; a named one makes every rank a host where all would share one.
class Engines : public ::testing::TestWithParam<std::tuple<int, const char*>> {};

TEST_P(Engines, DoEveryOperationAsTheOrderRuleSays) {
  const auto [ranks, algorithm] = GetParam();
  base::JobShape shape = testing::shape_of_environment(ranks);
  if (shape.hosts() == 1 && std::string(algorithm) != "auto") {
    std::vector<std::int32_t> alone(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) alone[static_cast<std::size_t>(rank)] = rank;
    shape = base::JobShape::of_leaders(alone).value();
  }
  Hosts hosts;
  for (std::int32_t host = 0; host < shape.hosts(); ++host) {
    hosts.emplace_back(shape.ranks_of(host).begin(), shape.ranks_of(host).end());
  }
  testing::EngineOptions options;
  options.environment = {std::string("RONDE_ALGORITHM=") + algorithm};
  testing::run_job(ranks, options, [&](int rank, runtime::Engine& engine) {
    const std::vector<Case> cases = Cases(hosts, rank).all(301, 1 << 19);
    EXPECT_EQ(do_all(engine, rank, cases, {}), "");
  });
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
