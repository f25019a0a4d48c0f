// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes, of which only some have a plug-in or a device.
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <ronde/ronde.hpp>

#include "test/device/device_job.h"

namespace ronde::device_test {
namespace {

class Processes : public ::testing::Test {
 protected:
  Processes() { ::setenv("RONDE_PLUGIN_PATH", std::getenv("RONDE_DEVICE_PLUGIN"), 1); }
  ~Processes() override {
    ::unsetenv("RONDE_PLUGIN_PATH");
    ::unsetenv("RONDE_TOY");
  }
  static std::span<float> span(const DeviceMemory& memory, std::size_t elements) {
    return {static_cast<float*>(memory.get()), elements};
  }
};

TEST_F(Processes, WithoutADeviceOnOneRankAllGoOnWithout) {
  ::setenv("RONDE_TOY", "absent on rank 1", 1);
  ronde::Engine engine;
  std::vector<float> host(100, 1.0F);
  engine.allreduce("host", std::span(host), ronde::sum).wait();
  EXPECT_EQ(host, std::vector<float>(100, static_cast<float>(engine.size())));
  if (engine.size() > 1) {
    const DeviceMemory memory(std::vector<float>(4, 1.0F));
    EXPECT_THROW(engine.allreduce("t", ronde::DeviceSpan<float>(span(memory, 4))).wait(),
                 ronde::Error);
  }
  engine.close();
}

TEST_F(Processes, APluginThatOneRankLacksIsNotUsed) {
  const bool first = std::string(std::getenv("OMPI_COMM_WORLD_RANK")) == "0";
  for (const char* const other : {"/nowhere/lib.so", "off"}) {
    if (!first) ::setenv("RONDE_PLUGIN_PATH", other, 1);
    ronde::Engine engine;
    std::vector<float> host(100, 1.0F);
    engine.allreduce("host", std::span(host), ronde::sum).wait();
    EXPECT_EQ(host, std::vector<float>(100, static_cast<float>(engine.size())));
    engine.close();
  }
}

}  // namespace
}  // namespace ronde::device_test
