// SPDX-License-Identifier: Apache-2.0
// Collectives among the ranks of a host for tensors that live on the board (board/arena.h): nothing
// is copied into slots. They take one window:
//
//   publish  each rank stores the places of its tensors in its arena into its slot buffer; posts
//            "filled"
//   move     all have filled: each rank reads straight from all ranks' tensors, and posts "done".
//            Of an allreduce it sums its part of the vector and stores it to all of them: p reads
//            and p writes per element, the lower bound. Of a reduce-scatter it sums its block, of
//            an allgather it copies the others', into memory of its own, wherever that lies
//   wait     all are done: no other rank touches this rank's tensors any more
//
// The contributions are summed in rank order, by the same kernels as in in_host/allreduce.h: the
// bits are the same.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/tensor.h"
#include "collectives/in_host/slots.h"
#include "collectives/kernels/reduce.h"
#include "collectives/transport/collective.h"

namespace ronde::collectives {

// Tells whether so many tensors can be reduced in place at once: their places must fit a slot
// buffer. The answer is the same on every rank.
[[nodiscard]] bool fits_in_place(const Slots& slots, std::size_t tensors);

// Every tensor's input is its output and lies in this rank's arena (an empty one lies anywhere), on
// every rank; no compression; fits_in_place(). Every rank passes the same reduction and sizes. The
// slots and the arenas must outlive the collective. Thread safety: that of Collective.
[[nodiscard]] std::unique_ptr<Collective> in_host_allreduce_in_place(
    Slots& slots, const std::vector<base::TensorView>& tensors, const Reduction& reduction);

// Every rank's input lies in its arena, and nothing is compressed. The blocks are those of
// blocks_of() (plane/exchange.h). The output may lie anywhere apart from the input, or in it where
// this rank's block is.
[[nodiscard]] std::unique_ptr<Collective> in_host_reduce_scatter_in_place(
    Slots& slots, const std::vector<base::TensorView>& blocks, const Reduction& reduction);
[[nodiscard]] std::unique_ptr<Collective> in_host_allgather_in_place(
    Slots& slots, std::vector<base::TensorView> blocks);

}  // namespace ronde::collectives
