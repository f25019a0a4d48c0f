// SPDX-License-Identifier: Apache-2.0
// What a rank of a job over several hosts has to work with.
#pragma once

#include <cstdint>
#include <optional>

#include "base/numbers.h"
#include "collectives/between_hosts.h"
#include "collectives/copy_kernels.h"
#include "collectives/job_shape.h"
#include "collectives/slots.h"
#include "collectives/transport.h"
#include "collectives/workspace.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// What it refers to must outlive the collectives. All ranks give the same shape, algorithm, segment
// and block; those of a host the same tuning.
struct HostsJob {
  const JobShape& shape;
  std::int32_t rank = 0;
  // Of this rank's host; a rank there is a position.
  Slots& slots;
  // Among the ranks of all hosts at this rank's position, in the order of the hosts; nullptr where
  // the position is not below shape.slices().
  Transport* across = nullptr;
  Workspace& workspace;
  SlotTuning tuning{};
  std::optional<Algorithm> algorithm{};  // between the hosts; none: whatever is fastest
  base::Bytes segment;                   // as for ring_allreduce
  // What a slice of a block has at most, and so what is in flight (default_block).
  base::Bytes block;
};

// The `block` that keeps the lines of a job of this shape busy. Pure.
[[nodiscard]] base::Bytes default_block(const JobShape& shape);

// How many of the shape's slices a vector is cut into, of so many bytes as they travel: a short one
// is not worth a message from every rank. Pure.
[[nodiscard]] std::int32_t slices_for(base::Bytes on_wire, const JobShape& shape);

// Chunk r of `blocks` is the block of rank r; chunk h of the result those of host h's ranks, one
// after another.
[[nodiscard]] fusion::FusedView by_host(const JobShape& shape, const fusion::FusedView& blocks);

}  // namespace ronde::collectives
