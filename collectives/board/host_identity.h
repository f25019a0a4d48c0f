// SPDX-License-Identifier: Apache-2.0
// What tells hosts apart: ranks with the same text can share a board.
#pragma once

#include <string>

namespace ronde::collectives {

// One line: the host's name, the running kernel, and the namespaces in which the sockets that hand
// a board over and the ids of processes are known.
[[nodiscard]] std::string host_identity();

}  // namespace ronde::collectives
