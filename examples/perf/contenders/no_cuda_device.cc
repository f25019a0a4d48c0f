// SPDX-License-Identifier: Apache-2.0
// Replaces cuda/device.cc in builds without CUDA.
#include "examples/gpu/no_device.h"
#include "examples/perf/contenders/device.h"
#include "examples/perf/options/options.h"

namespace ronde::perf {

std::unique_ptr<Device> open_cuda_device() {
  throw UsageError(std::string("--device cuda: ") + examples::kNoCudaInBuild +
                   ", or use --device cpu");
}

}  // namespace ronde::perf
