// SPDX-License-Identifier: Apache-2.0
// The device that gpu_engines runs on: a GPU, or, to see on any machine that the program itself is
// right, the toy.
#pragma once

#include "test/device/kit.h"

namespace ronde::gpu_test {

// In the process of a rank. `library`: the plug-in.
const ronde_device_kit& open_kit(const char* library);
bool has_device();
// Whether devices of processes that do not share a host id reach each other.
bool has_network();

}  // namespace ronde::gpu_test
