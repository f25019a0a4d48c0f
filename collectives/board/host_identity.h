// SPDX-License-Identifier: Apache-2.0
// The text that tells hosts apart: ranks with the same text can share a board.
#pragma once

#include <string>

namespace ronde::collectives {

// Returns one line: the host's name, the running kernel, and the namespaces in which the sockets
// that hand a board over and the ids of processes are known. Thread safety: any thread; it reads
// /proc.
[[nodiscard]] std::string host_identity();

}  // namespace ronde::collectives
