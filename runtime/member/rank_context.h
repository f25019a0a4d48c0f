// SPDX-License-Identifier: Apache-2.0
// What the parts of a rank share, and none of them owns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/config.h"
#include "base/job_shape.h"
#include "base/log.h"
#include "base/numbers.h"
#include "collectives/board/board.h"
#include "runtime/negotiate/control_node.h"

namespace ronde::runtime {

// Thread safety: a value; what it refers to outlives it.
struct RankContext {
  collectives::Board board;  // of this host
  const base::JobShape& shape;
  std::int32_t rank;
  const base::Config& config;
  const base::Clock& clock;
  const base::Log& log;

  [[nodiscard]] bool leads() const { return board.rank() == kLeader; }
  [[nodiscard]] std::int32_t rank_at(std::int32_t position) const {
    return shape.ranks_of(shape.host_of(rank))[base::narrow<std::size_t>(position)];
  }
};

}  // namespace ronde::runtime
