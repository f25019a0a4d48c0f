// SPDX-License-Identifier: Apache-2.0
// Invariants: silent while they hold; otherwise they say what, where and which values.
#include "base/check.h"

#include <gtest/gtest.h>

#include <string>

namespace ronde::base {
namespace {

TEST(Check, HoldsInSilence) {
  check(true, "never printed");
  check_eq(2, 2, "never printed");
  check_eq(std::string("a"), "a", "never printed");
}

TEST(CheckDeathTest, SaysWhatAndWhere) {
  EXPECT_DEATH(check(false, "the ring is closed"),
               "ronde: internal check failed at .*check_test.cc:[0-9]+: the ring is closed");
}

TEST(CheckDeathTest, PrintsBothOperands) {
  EXPECT_DEATH(check_eq(3, 4, "ranks"), "check_test.cc:[0-9]+: ranks \\(3 against 4\\)");
  EXPECT_DEATH(check_eq(std::string("left"), "right", "names"), "names \\(left against right\\)");
}

}  // namespace
}  // namespace ronde::base
