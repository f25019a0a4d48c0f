// SPDX-License-Identifier: Apache-2.0
// The texts for drivers that are missing or too old.
#include "collectives/cuda/driver_version.h"

#include <algorithm>

namespace ronde::collectives::cuda {

using base::Code;
using base::Status;

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Status check_driver(int driver, int runtime) {
  if (driver == 0) {
    return Status::error(Code::kUnsupported,
                         "there is no NVIDIA driver (libcuda.so.1) on this machine");
  }
  const int needed = std::max(kOldestDriver, runtime / 1000 * 1000);
  if (driver >= needed) return {};
  return Status::error(Code::kUnsupported, "the NVIDIA driver is one for CUDA " +
                                               cuda_version_text(driver) +
                                               ", and this plug-in needs one for CUDA " +
                                               cuda_version_text(needed) + " or newer");
}

}  // namespace ronde::collectives::cuda
