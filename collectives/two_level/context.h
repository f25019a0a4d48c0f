// SPDX-License-Identifier: Apache-2.0
// The arguments that the collectives of a job over several hosts have in common.
#pragma once

#include <cstdint>

#include "base/job_shape.h"
#include "base/numbers.h"
#include "collectives/in_host/slots.h"
#include "collectives/kernels/copy.h"
#include "collectives/messages/choose.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// It owns nothing: what it refers to must outlive the collectives. All ranks pass the same shape,
// algorithm, segment and block, and those of a host the same tuning.
struct TwoLevelContext {
  const base::JobShape& shape;
  std::int32_t rank = 0;
  // The slots of this rank's host; a rank there is a position.
  Slots& slots;
  // The transport among the ranks of all hosts at this rank's position, in the order of the hosts;
  // nullptr where the position is not below shape.slices().
  Transport* across = nullptr;
  Workspace& workspace;
  SlotTuning tuning{};
  const Algorithm* algorithm = nullptr;  // between the hosts; without one the fastest is chosen
  base::Bytes segment;                   // as for ring_allreduce
  // The most bytes of a slice of a block, and so of what is in flight (default_block).
  base::Bytes block;
};

// Returns the `block` that keeps the links of a job of this shape busy. Pure.
[[nodiscard]] base::Bytes default_block(const base::JobShape& shape);

// Returns how many of the shape's slices a vector is cut into that has so many bytes as they
// travel: a short one is not worth a message from every rank. Pure.
[[nodiscard]] std::int32_t slices_for(base::Bytes on_wire, const base::JobShape& shape);

// Groups blocks by host: chunk r of `blocks` is the block of rank r, and chunk h of the result has
// those of host h's ranks, one after another. The result refers to the same memory.
[[nodiscard]] fusion::FusedView by_host(const base::JobShape& shape,
                                        const fusion::FusedView& blocks);

}  // namespace ronde::collectives
