// SPDX-License-Identifier: Apache-2.0
// The gather allreduce, for small vectors: every rank gets the contributions of all, and sums all
// chunks by itself, each in the order of the ring with the same kernels. For n-1 times the bytes it
// takes one step where ranks are few, and else as many as the ranks have to double.
#pragma once

#include <cstdint>
#include <memory>

#include "base/numbers.h"
#include "collectives/kernels/reduce.h"
#include "collectives/messages/segment_plan.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// What one message carries at most, of all chunks together (but at least a line of each): longer
// vectors are cut into windows, a part of every chunk at a time.
inline constexpr std::int64_t kGatherWindowBytes = kMessageBytes;

// How many messages a rank sends, and how many of them follow each other.
struct GatherShape {
  int steps = 0;
  int messages = 0;
};
[[nodiscard]] GatherShape gather_shape(int ranks);

// As ring_allreduce, in every respect but the messages.
std::unique_ptr<Collective> gather_allreduce(Transport& transport, Workspace& workspace,
                                             fusion::FusedView view, const Reduction& reduction,
                                             int ranks, int tag,
                                             base::Bytes window = base::Bytes(kGatherWindowBytes));

}  // namespace ronde::collectives
