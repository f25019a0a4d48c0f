// SPDX-License-Identifier: Apache-2.0
// The allreduce of a job over several hosts. The vector has one chunk for each host and is worked
// on in blocks, a part of every chunk at a time (two_level/blocks.h). In three phases per block:
//
//   A   inside each host: slice i of the block is summed by its i-th rank, into engine memory
//   B   between the hosts: the i-th ranks of all hosts reduce slice i in place, by ring, direct or
//       gather
//   C   inside each host: the i-th rank gives the result of slice i to all ranks
//
// So several ranks of each host use the link together, as many as the smallest host has. (The order
// of the phases is in two_level/phases.h.)
//
// The order rule: A sums the ranks of a host in their order, and B the hosts c+1, c+2, ..., c for
// chunk c, rounding 16-bit types where both always do. A compressed f32 is 16-bit from the moment
// it is read: what A stores fits 16 bits, so B loses nothing of it.
#pragma once

#include <memory>
#include <vector>

#include "base/tensor.h"
#include "collectives/kernels/reduce.h"
#include "collectives/transport/collective.h"
#include "collectives/two_level/context.h"

namespace ronde::collectives {

// The job has at least two hosts. The tensors, at least one, have one dtype; each may be in place.
// They and what the context refers to must outlive the collective, which uses all of
// kTagsPerCollective tags. Thread safety: that of Collective.
[[nodiscard]] std::unique_ptr<Collective> two_level_allreduce(
    const TwoLevelContext& context, const std::vector<base::TensorView>& tensors,
    const Reduction& reduction, int first_tag);

}  // namespace ronde::collectives
