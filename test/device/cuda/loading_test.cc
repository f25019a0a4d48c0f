// SPDX-License-Identifier: Apache-2.0
// The plug-in as it is installed: on a machine without a driver it loads, and says in one line why
// it stays out.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "collectives/device/plugin_library.h"
#include "test/device/device_job.h"

namespace ronde::device_test {
namespace {

TEST(CudaLibrary, IsAPluginOfThisVersion) {
  const auto library = collectives::PluginLibrary::load(std::getenv("RONDE_DEVICE_PLUGIN"));
  ASSERT_TRUE(library.ok()) << library.status().message();
  EXPECT_EQ(library->name(), "cuda");
}

TEST(CudaLibrary, OpensOrSaysWhyItStaysOut) {
  const bool has_driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
  ASSERT_NE(Device::instance().plugin, nullptr);
  DeviceJob(2).run([has_driver](DeviceRank& rank) {
    EXPECT_EQ(rank.opened() == RONDE_PLUGIN_OK, rank.text().empty());
    if (has_driver) return;
    EXPECT_EQ(rank.opened(), RONDE_PLUGIN_UNAVAILABLE);
    EXPECT_EQ(rank.engine(), nullptr);
    EXPECT_EQ(rank.text(), "there is no NVIDIA driver (libcuda.so.1) on this machine");
  });
}

}  // namespace
}  // namespace ronde::device_test
