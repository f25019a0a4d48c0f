// SPDX-License-Identifier: Apache-2.0
// The collectives that move bytes in a job of several hosts without arithmetic: between the hosts
// as messages, so that every byte comes to every host once, and inside them over the slots of the
// board, in blocks (two_level/phases.h). Tensors and what the context refers to must outlive them.
// Thread safety: that of Collective.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/tensor.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/two_level/context.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// The view has one chunk. The root's input goes to every output. Between the hosts it travels from
// the root to the leaders of the other hosts. `all` is the transport of all ranks.
[[nodiscard]] std::unique_ptr<Collective> two_level_broadcast(const TwoLevelContext& context,
                                                              Transport& all,
                                                              fusion::FusedView view,
                                                              std::int32_t root, int first_tag);

// blocks[r] is the block of rank r: with an output on every rank, and an input on rank r. Blocks
// may differ in length. Between the hosts, the i-th ranks send slice i of each host's blocks around
// a ring.
[[nodiscard]] std::unique_ptr<Collective> two_level_allgather(
    const TwoLevelContext& context, base::DType dtype, const std::vector<base::TensorView>& blocks,
    int first_tag);

// It is done when every rank has begun it: first the ranks of each host wait for each other, then
// the leaders, and then the leaders release the ranks of their hosts.
[[nodiscard]] std::unique_ptr<Collective> two_level_barrier(const TwoLevelContext& context,
                                                            int first_tag);

}  // namespace ronde::collectives
