// SPDX-License-Identifier: Apache-2.0
// The gather allreduce, for small vectors: every rank receives the contributions of all, and sums
// all chunks by itself, each in the order of the ring with the same kernels. It sends n-1 times the
// bytes, in one step where ranks are few, and in ceil(log2 n) steps otherwise.
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

// The most bytes of a message, of all chunks together (but at least a line of each). Longer vectors
// are cut into windows, a part of every chunk at a time.
inline constexpr std::int64_t kGatherWindowBytes = kMessageBytes;

// The number of messages that a rank sends, and of steps in which they follow each other.
struct GatherShape {
  int steps = 0;
  int messages = 0;
};
[[nodiscard]] GatherShape gather_shape(int ranks);

// Arguments and promises are those of ring_allreduce; `window` is the length of a message in bytes.
// Thread safety: that of Collective.
std::unique_ptr<Collective> gather_allreduce(Transport& transport, Workspace& workspace,
                                             fusion::FusedView view, const Reduction& reduction,
                                             int ranks, int tag,
                                             base::Bytes window = base::Bytes(kGatherWindowBytes));

}  // namespace ronde::collectives
