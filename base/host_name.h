// SPDX-License-Identifier: Apache-2.0
// The name of this host, for error texts and the log.
#pragma once

#include <string>

namespace ronde::base {

// Returns the kernel's name for it, or "unknown" if that cannot be read.
[[nodiscard]] std::string host_name();

}  // namespace ronde::base
