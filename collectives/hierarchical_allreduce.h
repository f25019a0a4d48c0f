// SPDX-License-Identifier: Apache-2.0
// The allreduce of a job over several hosts. The vector has one chunk for each host and is worked
// on in blocks, a part of every chunk at a time (block_plan.h). In three stages per block:
//
//   A   inside each host: slice i of the block is summed by its i-th rank, into engine memory
//   B   between the hosts: the i-th ranks of all hosts reduce slice i in place, by ring, direct
//       or gather
//   C   inside each host: the i-th rank gives the result of slice i to everybody
//
// So all ranks of a host drive the line together, as many as the smallest host has. What the slots
// of a board do must be in one order on all ranks of a host: A0 A1 A2 C0 A3 C1 A4 C2 ...; stage B
// of up to three blocks runs beside it, so that the line does not wait for the memory.
//
// The order rule: A sums the ranks of a host in their order, and B the hosts c+1, c+2, ..., c for
// chunk c, rounding 16-bit types where they always do. A compressed f32 is 16-bit from reading on:
// what A stores fits 16 bits, so B loses nothing of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/numbers.h"
#include "base/tensor.h"
#include "collectives/between_hosts.h"
#include "collectives/collective.h"
#include "collectives/copy_kernels.h"
#include "collectives/job_shape.h"
#include "collectives/reduce_kernels.h"
#include "collectives/slots.h"
#include "collectives/transport.h"
#include "collectives/workspace.h"

namespace ronde::collectives {

// What a rank has to work with. All of it must outlive the collectives.
struct HostsJob {
  const JobShape& shape;
  // Of this rank's host; a rank there is a position.
  Slots& slots;
  // Among the ranks of all hosts at this rank's position, in the order of the hosts; nullptr where
  // the position is not below shape.slices().
  Transport* across = nullptr;
  Workspace& workspace;
  SlotTuning tuning{};
  std::optional<Algorithm> algorithm{};  // between the hosts; none: whatever is fastest
  base::Bytes segment;                   // as for ring_allreduce
  // What a slice of a block has at most, and so what is in flight; none: as is good. Tests only.
  std::optional<base::Bytes> block{};
};

// Over at least two hosts. Tensors of one dtype, at least one; each may be in place. Uses all of
// kTagsPerCollective tags.
[[nodiscard]] std::unique_ptr<Collective> hierarchical_allreduce(
    const HostsJob& job, const std::vector<base::TensorView>& tensors, const Reduction& reduction,
    int first_tag);

// How many of the shape's slices a vector is cut into, of so many bytes as they travel: a short one
// is not worth a message from every rank. Pure.
[[nodiscard]] std::int32_t slices_for(base::Bytes on_wire, const JobShape& shape);

}  // namespace ronde::collectives
