// SPDX-License-Identifier: Apache-2.0
// Quotas as text, and what can be said of any machine.
#include "base/process/cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <iterator>
#include <vector>

namespace ronde::base {
namespace {

TEST(CoresTest, QuotasAreWholeCores) {
  EXPECT_EQ(cores_of_quota("max 100000", 7), 7);
  EXPECT_EQ(cores_of_quota("", 7), 7);
  EXPECT_EQ(cores_of_quota("-1 100000", 7), 7);  // no limit in version 1
  EXPECT_EQ(cores_of_quota("100000", 7), 7);
  EXPECT_EQ(cores_of_quota("100000 0", 7), 7);
  EXPECT_EQ(cores_of_quota("200000 100000", 7), 2);
  EXPECT_EQ(cores_of_quota("150000 100000", 7), 1);
  EXPECT_EQ(cores_of_quota("10000 100000", 7), 1);
}

TEST(CoresTest, ThisMachineHasSome) {
  EXPECT_FALSE(allowed_processors().empty());
  EXPECT_LE(std::ssize(allowed_processors()), sysconf(_SC_NPROCESSORS_CONF));
  EXPECT_LE(cores_of_cgroups(3), 3);
}

TEST(CoresTest, MasksTogether) {
  using Masks = std::vector<std::vector<int>>;
  const std::int64_t three = cores_of_cgroups(3);
  EXPECT_EQ(cores_of_masks(Masks{{0}, {1}, {2}}), three);         // bound one by one
  EXPECT_EQ(cores_of_masks(Masks{{0, 1, 2}, {0, 1, 2}}), three);  // not bound
  EXPECT_EQ(cores_of_masks(Masks{{7}, {7}}), 1);                  // all on one
  EXPECT_EQ(cores_of_masks(Masks{{}, {}}), 1);                    // unknown
}

}  // namespace
}  // namespace ronde::base
