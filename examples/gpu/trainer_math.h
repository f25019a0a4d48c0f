// SPDX-License-Identifier: Apache-2.0
// The arithmetic of training on a GPU. Free of CUDA's types: builds without CUDA have it too
// (no_cuda_trainer_math.cc).
#pragma once

#include <memory>

#include "bindings/trainer/device_math.h"

namespace ronde::examples {

// Takes a device for this process, before there is an engine, which then takes the same. Throws
// NoDevice.
[[nodiscard]] std::unique_ptr<trainer::DeviceMath> open_cuda_math();

}  // namespace ronde::examples
