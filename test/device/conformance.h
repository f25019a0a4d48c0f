// SPDX-License-Identifier: Apache-2.0
// The fixture of the suite that every back end must pass: a job of each number of ranks.
#pragma once

#include <gtest/gtest.h>

#include "test/device/device_job.h"

namespace ronde::device_test {

class Conformance : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const Device& device = Device::instance();
    ASSERT_NE(device.plugin, nullptr) << "RONDE_DEVICE_PLUGIN names no plug-in";
    ASSERT_NE(device.kit, nullptr) << "the plug-in has no kit";
  }
  DeviceJob job_{GetParam()};
};

}  // namespace ronde::device_test
