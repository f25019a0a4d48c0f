// SPDX-License-Identifier: Apache-2.0
// The name of this host, for error texts and the log, and what tells hosts apart.
#pragma once

#include <string>

namespace ronde::base {

// Returns the kernel's name for it, or "unknown" if that cannot be read.
[[nodiscard]] std::string host_name();

// One line, the same for processes that can share a board: the host's name, the running kernel, and
// the namespaces in which the sockets that hand a board over and the ids of processes are known.
// Thread safety: any thread; it reads /proc.
[[nodiscard]] std::string host_identity();

}  // namespace ronde::base
