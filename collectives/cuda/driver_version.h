// SPDX-License-Identifier: Apache-2.0
// Which drivers are new enough. Pure.
#pragma once

#include <string>

#include "base/status.h"

namespace ronde::collectives::cuda {

// The oldest driver that has all functions we call; the device of a stream is the youngest.
inline constexpr int kOldestDriver = 12080;

// Versions as CUDA counts them: 12080 gives "12.8".
[[nodiscard]] std::string cuda_version_text(int version);

// kUnsupported: there is no driver (0), or it lacks functions that we call, or it is too old for
// the CUDA runtime that is linked in, which works with every driver of its own major version. The
// text names the version that is needed and the one that is there.
base::Status check_driver(int driver, int runtime);

}  // namespace ronde::collectives::cuda
