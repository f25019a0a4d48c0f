// SPDX-License-Identifier: Apache-2.0
#include "runtime/negotiate/make_control_node.h"

#include "runtime/negotiate/coordinator.h"
#include "runtime/negotiate/relay.h"

namespace ronde::runtime {

std::unique_ptr<ControlNode> make_control_node(const collectives::Board& board,
                                               const base::JobShape& shape, std::int32_t rank,
                                               Links* links, const base::Config& config,
                                               const base::Clock& clock, LateRanks& late) {
  if (board.rank() != kLeader) return nullptr;
  if (rank == kCoordinator) {
    return std::make_unique<Coordinator>(board, shape, links, config, clock, late);
  }
  return std::make_unique<Relay>(board, shape, shape.host_of(rank), *links, clock);
}

}  // namespace ronde::runtime
