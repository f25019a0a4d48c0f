// SPDX-License-Identifier: Apache-2.0
// Replaces cuda/trainer_math.cc in builds without CUDA.
#include "examples/gpu/no_device.h"
#include "examples/gpu/trainer_math.h"

namespace ronde::examples {

std::unique_ptr<trainer::DeviceMath> open_cuda_math() { throw NoDevice(kNoCudaInBuild); }

}  // namespace ronde::examples
