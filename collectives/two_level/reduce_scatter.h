// SPDX-License-Identifier: Apache-2.0
// The reduce-scatter of a job over several hosts, the first half of its allreduce. The chunk of a
// host has the blocks of its ranks, one after another, and passes through the phases of the
// allreduce (two_level/allreduce.h):
//
//   A   inside each host: slice i of all chunks is summed by its i-th rank, into engine memory
//   B   between the hosts: the i-th ranks of all hosts reduce slice i, each the chunk of its own
//       host, by ring or direct
//   C   inside each host: the i-th rank lays out slice i of the host's chunk, and each rank copies
//       the part that belongs to its block
//
// So a host receives one sum of its ranks' blocks from each neighbour, and not one from each rank.
// The order rule: the blocks of host c are summed by the ranks of a host in their order, and
// then by the hosts c+1, c+2, ..., c.
#pragma once

#include <memory>
#include <vector>

#include "base/tensor.h"
#include "collectives/kernels/reduce.h"
#include "collectives/transport/collective.h"
#include "collectives/two_level/context.h"

namespace ronde::collectives {

// The job has at least two hosts. blocks[r] is the block of rank r: with an input on every rank,
// and an output on rank r, which may be its input. Blocks may differ in length, and be empty. They
// and what the context refers to must outlive the collective, which uses all of kTagsPerCollective
// tags.
// Thread safety: that of Collective.
[[nodiscard]] std::unique_ptr<Collective> two_level_reduce_scatter(
    const TwoLevelContext& context, const std::vector<base::TensorView>& blocks,
    const Reduction& reduction, int first_tag);

}  // namespace ronde::collectives
