// SPDX-License-Identifier: Apache-2.0
// What every back end must do: plugin.h as tests. RONDE_DEVICE_PLUGIN names the library, which also
// exports a kit (kit.h). What operations compute is for test/conformance/devices_test.cc.
#include <gmock/gmock.h>

#include "test/device/conformance.h"

namespace ronde::device_test {
namespace {

TEST_P(Conformance, OpensAndSaysWhatItIs) {
  EXPECT_EQ(Device::instance().plugin->version, RONDE_PLUGIN_VERSION);
  EXPECT_STRNE(Device::instance().plugin->name, "");
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_GT(std::strlen(rank.info().versions), 0U);
    EXPECT_GE(rank.info().device, 0);
  });
}

TEST_P(Conformance, AbortEndsWhatWaitsForOthers) {
  if (GetParam() == 1) return;  // nobody to wait for
  job_.run([this](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    if (rank.rank() == 0) {
      job_.meet();
    } else {
      const DeviceMemory memory(contribution(rank.rank(), 100));
      ronde_plugin_work* const work = rank.execute(Batch().add(memory, 100).get());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(rank.poll(work), RONDE_PLUGIN_PENDING) << "rank 0 never came";
      job_.meet();  // the abort of one may end the works of the others
      const auto begin = std::chrono::steady_clock::now();
      rank.plugin().abort(rank.engine(), "rank 0 is dead");
      EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_FAILED);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
      EXPECT_THAT(rank.text(), testing::HasSubstr("rank 0 is dead"));
      rank.close();
    }
    job_.meet();
  });
}

TEST_P(Conformance, TellsHostFromDeviceMemoryAndRefusesACapturedStream) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceMemory device(100);
    const DeviceMemory managed(100, true);
    const std::vector<char> host(100);
    EXPECT_EQ(rank.kind_of(host.data()), RONDE_MEMORY_HOST);
    EXPECT_EQ(rank.kind_of(device.get()), RONDE_MEMORY_DEVICE);
    EXPECT_EQ(rank.kind_of(static_cast<char*>(device.get()) + 99), RONDE_MEMORY_DEVICE);
    EXPECT_EQ(rank.kind_of(managed.get()), RONDE_MEMORY_MANAGED);
    const DeviceStream stream;
    EXPECT_EQ(rank.check_stream(stream.get()), RONDE_PLUGIN_OK);
    kit.begin_capture(stream.get());
    EXPECT_EQ(rank.check_stream(stream.get()), RONDE_PLUGIN_INVALID);
    EXPECT_THAT(rank.text(), testing::HasSubstr("capture"));
    kit.end_capture(stream.get());
    EXPECT_EQ(rank.check_stream(stream.get()), RONDE_PLUGIN_OK);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Conformance, testing::Values(1, 2, 3));

}  // namespace
}  // namespace ronde::device_test
