// SPDX-License-Identifier: Apache-2.0
// Which drivers are refused, and what a user is told.
#include "collectives/cuda/driver_version.h"

#include <gtest/gtest.h>

namespace ronde::collectives::cuda {
namespace {

TEST(DriverVersion, TheRuntimeNeedsOneOfItsOwnMajorVersion) {
  EXPECT_TRUE(check_driver(13000, 13010).ok()) << "an older minor version will do";
  EXPECT_TRUE(check_driver(13020, 13000).ok());
  EXPECT_TRUE(check_driver(14000, 13000).ok());
  const auto old = check_driver(12090, 13000);
  EXPECT_EQ(old.code(), base::Code::kUnsupported);
  EXPECT_EQ(old.message(),
            "the NVIDIA driver is one for CUDA 12.9, and this plug-in needs one for CUDA 13.0 or "
            "newer");
}

TEST(DriverVersion, WhatIsCalledNeedsOneThatHasIt) {
  EXPECT_TRUE(check_driver(12080, 12080).ok());
  EXPECT_EQ(check_driver(12040, 12080).message(),
            "the NVIDIA driver is one for CUDA 12.4, and this plug-in needs one for CUDA 12.8 or "
            "newer");
}

TEST(DriverVersion, NoneIsNotAnOldOne) {
  EXPECT_EQ(check_driver(0, 13000).message(),
            "there is no NVIDIA driver (libcuda.so.1) on this machine");
}

}  // namespace
}  // namespace ronde::collectives::cuda
