// SPDX-License-Identifier: Apache-2.0
// Every interleaving of the role protocol with two waiters, each with a work of its own that a
// poster rings for: apart from agent_role_test.cc because it takes as long as all the other worlds
// together.
#include <chrono>
#include <iostream>

#include "gtest/gtest.h"
#include "test/support/role_model.h"

namespace ronde::test {
namespace {

TEST(EveryInterleaving, OfTwoWaitersAndTwoRings) {
  RoleScenario world;
  world.name = "TwoRings";
  world.works = {Source::kRing, Source::kRing};
  world.waiters = {{0, false}, {1, false}};
  world.watches = false;
  world.one_poster = true;
  const auto start = std::chrono::steady_clock::now();
  const Interleaving::Report report = explore_role(world, Mutant::kNone, 20'000'000);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << report.states << " states, " << report.transitions << " transitions, "
            << seconds.count() << " s\n";
  EXPECT_TRUE(report.failure.empty()) << report.failure;
  EXPECT_TRUE(report.complete);
  EXPECT_GT(report.quiet, 0U);
}

}  // namespace
}  // namespace ronde::test
