// SPDX-License-Identifier: Apache-2.0
// Whether a rank of this host is stopped, by SIGSTOP or under a debugger; the reports of a stall
// use it. Reads /proc. Thread safety: every function may be called from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/board/board.h"

namespace ronde::runtime {

[[nodiscard]] bool is_stopped(const collectives::Presence& presence);

// "; rank 3 (host node1, pid 42) is stopped: continue it or end the job", or nothing if it is not.
[[nodiscard]] std::string stopped_text(std::int32_t rank, const collectives::Presence& presence);

}  // namespace ronde::runtime
