// SPDX-License-Identifier: Apache-2.0
// The collectives that move bytes among the ranks of a host without arithmetic, over the slots of
// the board. Slots and tensors must outlive them; thread safety is that of Collective.
#pragma once

#include <memory>

#include "collectives/in_host/slots.h"
#include "collectives/transport/collective.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// The root's inputs go to the outputs of all ranks. `view` has one chunk.
[[nodiscard]] std::unique_ptr<Collective> in_host_broadcast(Slots& slots, fusion::FusedView view,
                                                            std::int32_t root,
                                                            const SlotTuning& tuning);

// Chunk r of the view is the block of rank r, with an input on rank r. Blocks may differ in size
// and be empty; a rank skips what has no output there.
[[nodiscard]] std::unique_ptr<Collective> in_host_allgather(Slots& slots, fusion::FusedView view,
                                                            const SlotTuning& tuning);

// It is done when every rank has begun it.
[[nodiscard]] std::unique_ptr<Collective> in_host_barrier(Slots& slots);

}  // namespace ronde::collectives
