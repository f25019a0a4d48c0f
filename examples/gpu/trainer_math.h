// SPDX-License-Identifier: Apache-2.0
// The arithmetic of training on a GPU. This header has no types of CUDA: builds without CUDA use it
// too (no_cuda_trainer_math.cc).
#pragma once

#include <memory>

#include "examples/gpu/device_math.h"

namespace ronde::examples {

// Takes a device for this process; call it before the engine opens, which then takes the same one.
// Throws NoDevice.
[[nodiscard]] std::unique_ptr<trainer::DeviceMath> open_cuda_math();

}  // namespace ronde::examples
