// SPDX-License-Identifier: Apache-2.0
// The allreduce of four ranks for short vectors: the bytes of direct, or a few more, in as few
// messages as they have steps. Ranks stand at the corners of a square and talk to one neighbour at
// a time. With a message of all that they have for it:
//
//   1   rank r sends its part of chunks r+1 and r-1 to r+1, which makes of one of them the
//   beginning
//       of a sum, r + (r+1), and keeps the other
//   2   r and r+2, across the square, exchange the sums that they have begun: each adds what it has
//       kept, and its own part, and has its chunk whole
//   3   neighbours exchange their chunks
//   4   across the square both exchange the two chunks that they have: everybody has four
//
// For very short vectors one step fewer: in step 2 ranks also send what the other one needs to add
// up their own chunk, so that both have two whole chunks, and 3 is the last.
//
//                     steps   messages   times the bytes
//   in four steps     4       4          3/2
//   in three steps    3       3          7/4
//
// Every chunk c is summed in the order of the ring, c+1, c+2, c+3, c, with the same kernels.
#pragma once

#include <memory>

#include "base/numbers.h"
#include "collectives/collective.h"
#include "collectives/reduce_kernels.h"
#include "collectives/transport.h"
#include "collectives/workspace.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

inline constexpr int kSquareRanks = 4;

// As ring_allreduce, in every respect but the messages, which are not cut: four ranks.
std::unique_ptr<Collective> square_allreduce(Transport& transport, Workspace& workspace,
                                             fusion::FusedView view, const Reduction& reduction,
                                             int ranks, int tag, int steps);

}  // namespace ronde::collectives
