// SPDX-License-Identifier: Apache-2.0
#include "collectives/transport/ucx/devices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace ronde::collectives::ucx {
namespace {

class UcxDevices : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "ucx_devices_" + std::to_string(::getpid());
    for (const char* path : {"eth0/device", "ib0/device/infiniband/mlx5_0/ports/1",
                             "ib0/device/infiniband/mlx5_0/ports/2"}) {
      std::filesystem::create_directories(folder_ + "/" + path);
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string of(const std::string& interfaces) const {
    return devices_of(interfaces, folder_);
  }

 private:
  std::string folder_;
};

TEST_F(UcxDevices, AnInterfaceIsADevice) {
  EXPECT_EQ(of("eth0"), "eth0");
  EXPECT_EQ(of("eth0,lo"), "eth0,lo");
  EXPECT_EQ(of(""), "");
}

TEST_F(UcxDevices, ThePortsOfItsRdmaDeviceComeFirst) {
  EXPECT_EQ(of("ib0"), "mlx5_0:1,mlx5_0:2,ib0");
  EXPECT_EQ(of("eth0,ib0"), "eth0,mlx5_0:1,mlx5_0:2,ib0");
}

}  // namespace
}  // namespace ronde::collectives::ucx
