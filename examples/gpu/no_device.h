// SPDX-License-Identifier: Apache-2.0
// Why a program cannot use the device that it was asked to use: one line, for the user.
#pragma once

#include <stdexcept>

namespace ronde::examples {

class NoDevice : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The reason in a build without CUDA.
inline constexpr const char* kNoCudaInBuild =
    "this build has no CUDA: configure with the preset cuda";

}  // namespace ronde::examples
