// SPDX-License-Identifier: Apache-2.0
// The reduce-scatter of a job over several hosts: the first half of its allreduce. The chunk of a
// host is what its ranks get, one block after another, and is worked on as the allreduce's
// (two_level/allreduce.h):
//
//   A   inside each host: slice i of all chunks is summed by its i-th rank, into engine memory
//   B   between the hosts: the i-th ranks of all hosts reduce slice i, each the chunk of its own
//       host, by ring or direct
//   C   inside each host: the i-th rank lays out slice i of the host's chunk, and each rank takes
//       what is of its block
//
// So what a host hears of its ranks' blocks is one sum from each neighbour, and not one from each
// rank. The order rule: the blocks of host c are summed by the ranks of a host in their order, and
// then by the hosts c+1, c+2, ..., c.
#pragma once

#include <memory>
#include <vector>

#include "base/tensor.h"
#include "collectives/kernels/reduce.h"
#include "collectives/transport/collective.h"
#include "collectives/two_level/context.h"

namespace ronde::collectives {

// Over at least two hosts. blocks[r] is what rank r gets: with an input everywhere, and an output
// on rank r, which may be its input. They may differ in length, and be empty. Uses all of
// kTagsPerCollective tags.
[[nodiscard]] std::unique_ptr<Collective> two_level_reduce_scatter(
    const TwoLevelContext& context, const std::vector<base::TensorView>& blocks,
    const Reduction& reduction, int first_tag);

}  // namespace ronde::collectives
