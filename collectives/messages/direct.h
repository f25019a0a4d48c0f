// SPDX-License-Identifier: Apache-2.0
// The direct allreduce: the bytes of the ring in two steps. Every rank sends its part of chunk c
// straight to rank c, which sums the parts and sends the result straight to all ranks.
//
//   n = 4, rank 0:   contributions   to 3, 2, 1 and from 1, 2, 3     then the sum of chunk 0
//                    results         to 3, 2, 1 and from 1, 2, 3
//
// Rank c sums in the order of the ring, c+1, c+2, ..., c, with the same kernels, so the bits are
// the ring's. Each rank sends to the previous one first, so that contributions arrive in the order
// in which they are summed.
//
// Without the results it is a reduce-scatter, in one step.
#pragma once

#include <memory>

#include "base/numbers.h"
#include "collectives/kernels/reduce.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// Arguments and promises are those of ring_allreduce. A segment here is at most the given one: with
// more ranks it is shorter, so that what is in flight takes no more memory than the ring's. Thread
// safety: that of Collective, here and below.
std::unique_ptr<Collective> direct_allreduce(Transport& transport, Workspace& workspace,
                                             fusion::FusedView view, const Reduction& reduction,
                                             int ranks, base::Bytes segment, int tag);

// Arguments and promises are those of ring_reduce_scatter.
std::unique_ptr<Collective> direct_reduce_scatter(Transport& transport, Workspace& workspace,
                                                  fusion::FusedView blocks_view,
                                                  const Reduction& reduction, int ranks,
                                                  base::Bytes segment, int tag);

}  // namespace ronde::collectives
