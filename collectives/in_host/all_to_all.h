// SPDX-License-Identifier: Apache-2.0
// All-to-all among the ranks of a host, over the slots of the board.
#pragma once

#include <memory>

#include "collectives/in_host/slots.h"
#include "collectives/messages/all_to_all.h"
#include "collectives/transport/collective.h"

namespace ronde::collectives {

// What others send is not known in advance: in the first window everybody lays out how many rows it
// has for whom; then every rank knows how many windows follow. Until it is done no other collective
// of these slots may be made.
[[nodiscard]] std::unique_ptr<Collective> in_host_all_to_all(Slots& slots, RowsToSend send,
                                                             AllocateRows allocate,
                                                             const SlotTuning& tuning);

}  // namespace ronde::collectives
