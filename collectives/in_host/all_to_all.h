// SPDX-License-Identifier: Apache-2.0
// All-to-all among the ranks of a host, over the slots of the board.
#pragma once

#include <memory>

#include "collectives/in_host/slots.h"
#include "collectives/messages/all_to_all.h"
#include "collectives/transport/collective.h"

namespace ronde::collectives {

// No rank knows in advance how many rows the others send: in the first window every rank lays out
// its numbers of rows, from which all ranks know how many windows follow. Until the collective is
// done no other one of these slots may be made. The slots and the memory of `send` must outlive it.
// Thread safety: that of Collective.
[[nodiscard]] std::unique_ptr<Collective> in_host_all_to_all(Slots& slots, RowsToSend send,
                                                             AllocateRows allocate,
                                                             const SlotTuning& tuning);

}  // namespace ronde::collectives
