// SPDX-License-Identifier: Apache-2.0
// The ring: an allreduce in 2(n-1) steps and 2(n-1)/n of the bytes, and its two halves, the
// reduce-scatter and the allgather. ring_plan.h explains the algorithm.
#pragma once

#include <memory>

#include "base/numbers.h"
#include "collectives/kernels/reduce.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// The view has one chunk per rank, and every rank a view of the same lengths. Tensors may be in
// place. A segment is what one message carries: a smaller one costs more messages; a larger one
// leaves less to overlap and falls out of the cache. The transport, the workspace and the tensors
// must outlive the collective. Thread safety: that of Collective.
//
// A compressed reduction is one of 16-bit tensors: contributions are rounded when they are read, so
// half the bytes travel, and results are widened when they are written. Which chunk an element
// belongs to, and so the order of its sum, does not depend on it.
//
// An average divides by `ranks`, which is more than the ranks of the transport where the inputs are
// sums already.
std::unique_ptr<Collective> ring_allreduce(Transport& transport, Workspace& workspace,
                                           fusion::FusedView view, const Reduction& reduction,
                                           int ranks, base::Bytes segment, int tag);

// Chunk c of the view is the block of rank c (FusedView::of_chunks): every rank contributes to all
// blocks, and only its own has an output. Blocks may differ in length, and may be empty. Block c is
// summed in the order c+1, c+2, ..., c. `ranks` as for ring_allreduce.
std::unique_ptr<Collective> ring_reduce_scatter(Transport& transport, Workspace& workspace,
                                                fusion::FusedView blocks_view,
                                                const Reduction& reduction, int ranks,
                                                base::Bytes segment, int first_tag);

// Chunk c of the view is the block of rank c; blocks may differ in length, and may be empty.
std::unique_ptr<Collective> ring_allgather(Transport& transport, Workspace& workspace,
                                           fusion::FusedView view, base::Bytes segment, int tag);

}  // namespace ronde::collectives
