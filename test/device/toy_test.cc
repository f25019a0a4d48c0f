// SPDX-License-Identifier: Apache-2.0
// The toy device when it is not there, and when it cannot reach others of its kind.
#include <gmock/gmock.h>

#include "test/device/device_job.h"

namespace ronde::device_test {
namespace {

class ToyTest : public testing::Test {
 protected:
  ~ToyTest() override { ::unsetenv("RONDE_TOY"); }
};

TEST_F(ToyTest, SaysWhyItStaysOut) {
  ::setenv("RONDE_TOY", "absent", 1);
  DeviceJob(2).run([](DeviceRank& rank) {
    EXPECT_EQ(rank.opened(), RONDE_PLUGIN_UNAVAILABLE);
    EXPECT_EQ(rank.engine(), nullptr);
    EXPECT_EQ(rank.text(), "no toy is plugged in");
  });
}

TEST_F(ToyTest, LeavesCollectivesToTheHost) {
  ::setenv("RONDE_TOY", "staged", 1);
  DeviceJob(2).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_EQ(rank.info().has_collectives, 0);
  });
}

}  // namespace
}  // namespace ronde::device_test
