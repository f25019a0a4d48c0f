// SPDX-License-Identifier: Apache-2.0
// Engines in one process do everything in cases.h with tensors of the device under test: where
// devices reach each other, and through host memory.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "test/conformance/engine_cases.h"
#include "test/device/device_engines.h"

namespace ronde::conformance {
namespace {

// Ranks, and whether the devices reach each other.
class Devices : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  Devices() {
    if (!std::get<1>(GetParam())) ::setenv("RONDE_TOY", "staged", 1);
  }
  ~Devices() override { ::unsetenv("RONDE_TOY"); }
};

TEST_P(Devices, DoEverything) {
  const auto [ranks, direct] = GetParam();
  // One rank alone has nobody whom its device cannot reach.
  const bool on_device = direct || ranks == 1;
  OnceForAll once;
  testing::run_job(ranks, device_test::options_of_device(), [&](int rank, runtime::Engine& engine) {
    EXPECT_EQ(do_all_on_device(engine, rank, ranks, on_device, &once), "");
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Devices,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Bool()),
                         [](const auto& one) {
                           return std::to_string(std::get<0>(one.param)) + "Ranks" +
                                  (std::get<1>(one.param) ? "Direct" : "Staged");
                         });

// The devices reach each other, but in a process set tensors pass through host memory all the same.
TEST(DevicesInProcessSets, DoEverythingThroughHostMemory) {
  OnceForAll of_set;
  OnceForAll of_job;
  testing::run_job(3, device_test::options_of_device(), [&](int rank, runtime::Engine& engine) {
    const auto set = engine.subset({0, 2}, "pair");
    ASSERT_TRUE(set.ok()) << set.status().message();
    if (rank != 1) {
      EXPECT_EQ(do_all_on_device(**set, (*set)->rank(), 2, false, &of_set), "");
    }
    EXPECT_EQ(do_all_on_device(engine, rank, 3, true, &of_job), "");
  });
}

}  // namespace
}  // namespace ronde::conformance
