// SPDX-License-Identifier: Apache-2.0
// The gather allreduce, for small vectors: everybody sends everything to everyone, one message per
// peer, and every rank sums all chunks by itself, each in the order of the ring with the same
// kernels. One step, for n-1 times the bytes.
#pragma once

#include <cstdint>
#include <memory>

#include "base/numbers.h"
#include "collectives/collective.h"
#include "collectives/reduce_kernels.h"
#include "collectives/segment_plan.h"
#include "collectives/transport.h"
#include "collectives/workspace.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// What one message carries at most, of all chunks together (but at least a line of each): longer
// vectors are cut into windows, a part of every chunk at a time.
inline constexpr std::int64_t kGatherWindowBytes = kMessageBytes;

// As ring_allreduce, in every respect but the messages.
std::unique_ptr<Collective> gather_allreduce(Transport& transport, Workspace& workspace,
                                             fusion::FusedView view, const Reduction& reduction,
                                             int ranks, int tag,
                                             base::Bytes window = base::Bytes(kGatherWindowBytes));

}  // namespace ronde::collectives
