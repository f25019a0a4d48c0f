// SPDX-License-Identifier: Apache-2.0
// The allreduce of four ranks for short vectors: the bytes of direct, or a few more, in as few
// messages as there are steps. Ranks stand at the corners of a square and talk to one at a time.
//
//   1   rank r sends its parts of chunks r+1 and r-1 to r+1, which keeps the first and makes the
//       other the beginning of a sum: that part and its own
//   2   r and r+2, across the square, exchange the sums that they have begun: each adds what it has
//       kept and its own part, and has its chunk whole
//   3   ranks 0 and 1, and 2 and 3, exchange their chunks
//   4   across the square both send the two chunks that they have: everybody has four
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

#include <cstdint>
#include <memory>

#include "base/numbers.h"
#include "collectives/kernels/reduce.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

inline constexpr int kSquareRanks = 4;

enum class SquareKind : std::uint8_t { kFourSteps, kThreeSteps };

// As ring_allreduce, but of four ranks, and with messages that are not cut: of half the vector, or
// of three quarters.
std::unique_ptr<Collective> square_allreduce(Transport& transport, Workspace& workspace,
                                             fusion::FusedView view, const Reduction& reduction,
                                             int ranks, int tag, SquareKind kind);

}  // namespace ronde::collectives
