// SPDX-License-Identifier: Apache-2.0
// What moves bytes among the ranks of a host without arithmetic, over the slots of the board.
#pragma once

#include <memory>

#include "collectives/in_host/slots.h"
#include "collectives/transport/collective.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// Everybody's outputs get the root's inputs. `view` has one chunk.
[[nodiscard]] std::unique_ptr<Collective> in_host_broadcast(Slots& slots, fusion::FusedView view,
                                                            std::int32_t root,
                                                            const SlotTuning& tuning);

// Chunk r of the view is what rank r gives, with an input on rank r. Blocks may differ in size and
// be empty; what has no output on a rank is passed over there.
[[nodiscard]] std::unique_ptr<Collective> in_host_allgather(Slots& slots, fusion::FusedView view,
                                                            const SlotTuning& tuning);

// Done when every rank has begun it.
[[nodiscard]] std::unique_ptr<Collective> in_host_barrier(Slots& slots);

}  // namespace ronde::collectives
