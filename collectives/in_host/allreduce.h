// SPDX-License-Identifier: Apache-2.0
// Allreduce among the ranks of a host, over the slots of the board: streaming fusion. The tensors
// of a batch are read as one vector and never packed: pieces of it go straight from the user's
// memory into cache-sized slots, are summed in rank order, and straight into the outputs.
//
// Window w of a rank, which owns one piece of every window:
//
//   fill     copies the pieces that others own from its tensors into its slots;    posts "filled"
//   reduce   all have filled: sums its own piece over its tensors and the others' slots, and stores
//            the sum into its outputs and back over every contributor's slot;      posts "done"
//   empty    all are done: copies the other pieces from its own slots into its outputs
//
// A rank fills w + 1, reduces w and empties w - 1, one after the other: the others do what it waits
// for while it does something else.
//
// The owner stores the sum over the slot that it was read from: load and store of a line are then
// one transfer of its ownership, and each rank reads only its own slots. Small vectors take one
// window in which every rank lays out everything and sums everything; the smallest travel beside
// the counters.
#pragma once

#include <memory>

#include "base/dtype.h"
#include "collectives/in_host/slots.h"
#include "collectives/kernels/reduce.h"
#include "collectives/transport/collective.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// `view` has one chunk. Every rank passes the same reduction, tuning and number of elements. The
// result is complete on this rank when step() returns kDone; the slots and the tensors must outlive
// the collective.
//
// Contributions are summed in rank order; 16-bit types in f32, rounded once. A compressed tensor is
// 16-bit from the moment it is read, on its owner too. Thread safety: that of Collective.
[[nodiscard]] std::unique_ptr<Collective> in_host_allreduce(Slots& slots, fusion::FusedView view,
                                                            const Reduction& reduction,
                                                            const SlotTuning& tuning);

// Vectors that take at most this many bytes in a slot are reduced in one window.
[[nodiscard]] std::int64_t small_vector_bytes(std::int32_t ranks, std::int64_t buffer_bytes);

}  // namespace ronde::collectives
