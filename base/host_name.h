// SPDX-License-Identifier: Apache-2.0
// The name of this host, for texts.
#pragma once

#include <string>

namespace ronde::base {

// As the kernel has it; "unknown" when it does not say.
[[nodiscard]] std::string host_name();

}  // namespace ronde::base
