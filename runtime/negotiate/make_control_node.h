// SPDX-License-Identifier: Apache-2.0
// Which control node a leader steps.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/config.h"
#include "base/job_shape.h"
#include "collectives/board/board.h"
#include "runtime/links/links.h"
#include "runtime/negotiate/control_node.h"

namespace ronde::runtime {

// The control node of the leader `rank`: the coordinator on rank 0, elsewhere a relay; nullptr on a
// rank that leads no host. links: to other hosts; nullptr on a single one. Every argument given by
// reference or pointer must outlive it.
[[nodiscard]] std::unique_ptr<ControlNode> make_control_node(
    const collectives::Board& board, const base::JobShape& shape, std::int32_t rank, Links* links,
    const base::Config& config, const base::Clock& clock, LateRanks& late);

}  // namespace ronde::runtime
