// SPDX-License-Identifier: Apache-2.0
// The toy device when it is not there, and when it cannot reach others of its kind.
#include <gmock/gmock.h>

#include "test/device/conformance.h"

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

TEST_F(ToyTest, SaysWhenAStreamCanWait) {
  ::setenv("RONDE_TOY", "late streams", 1);
  DeviceJob(1).run([](DeviceRank& rank) {
    const ronde_device_kit& kit = *Device::instance().kit;
    void* const before = kit.make_stream();
    void* const after = kit.make_stream();
    kit.delay(before, 50);
    const DeviceMemory memory(std::vector<float>(10, 1.0F));
    ronde_plugin_work* const work = rank.execute(Batch().add(memory, 10, rank.mark(before)).get());
    Text text{};
    EXPECT_EQ(rank.plugin().wait_on(rank.engine(), work, after, text.data(), text.size()),
              RONDE_PLUGIN_PENDING);
    EXPECT_EQ(rank.rings(), 0);
    EXPECT_EQ(rank.wait_on(work, after), RONDE_PLUGIN_OK);
    EXPECT_GE(rank.rings(), 1);
    EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_OK);
    kit.synchronize(after);
    kit.free_stream(before);
    kit.free_stream(after);
  });
}

}  // namespace
}  // namespace ronde::device_test
