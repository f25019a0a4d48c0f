// SPDX-License-Identifier: Apache-2.0
// Which drivers will do. Pure.
#pragma once

#include <string>

#include "base/status.h"

namespace ronde::collectives::cuda {

// The oldest driver with all functions that are called: the device of a stream can be asked for.
inline constexpr int kOldestDriver = 12080;

// As CUDA counts: 12080 is "12.8".
[[nodiscard]] std::string cuda_version_text(int version);

// kUnsupported: there is no driver (0), or it is too old for the CUDA runtime that is linked in,
// which works with every driver of its own major version, or for what is called of it. The text
// says what is needed and what there is.
base::Status check_driver(int driver, int runtime);

}  // namespace ronde::collectives::cuda
