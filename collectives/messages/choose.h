// SPDX-License-Identifier: Apache-2.0
// The choice of the algorithm for an allreduce or a reduce-scatter between hosts. All of them give
// the same bits, so the choice decides about time alone. But all ranks must make the same choice,
// so it depends on sizes and the number of hosts only. Pure, but for the functions that make
// collectives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/numbers.h"
#include "collectives/kernels/reduce.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

enum class Algorithm : std::uint8_t { kRing, kDirect, kGather };

[[nodiscard]] std::string_view name_of(Algorithm algorithm);  // "ring"
[[nodiscard]] std::optional<Algorithm> algorithm_of(std::string_view name);

// The most bytes of a vector, as they travel, for which each of these is the fastest, in this
// order; above both the ring is. An algorithm with 0 bytes is never the fastest.
struct AlgorithmLimits {
  base::Bytes gather;
  base::Bytes direct;
};

// The limits come from a model of a line of 1 Gbit/s with TCP, where the choice matters most: a
// step costs 10 us, a message 12 us of the processors at its ends, and a byte 8 ns on the line that
// all ranks of a host share.
//
//            steps                 messages              times the bytes
//   gather   1, from 4 on log2 n   n-1, or log2 n        n-1
//   direct   2                     2(n-1)                2(n-1)/n, and a sixteenth more where
//                                                        several send to one rank at a time
//   ring     2(n-1)                2(n-1)                2(n-1)/n
[[nodiscard]] AlgorithmLimits limits_for(int hosts);
[[nodiscard]] Algorithm choose_algorithm(base::Bytes on_wire, int hosts);

// A reduce-scatter has the first half of the steps, messages and bytes of the ring or of direct, so
// that these two meet where their allreduces do. Gather has no such half.
[[nodiscard]] Algorithm choose_scatter_algorithm(base::Bytes on_wire, int hosts);

// Makes a ring_reduce_scatter for the ring, and a direct_reduce_scatter for both others.
[[nodiscard]] std::unique_ptr<Collective> reduce_scatter_between(
    Algorithm algorithm, Transport& transport, Workspace& workspace, fusion::FusedView blocks_view,
    const Reduction& reduction, int ranks, base::Bytes segment, int tag);

// Makes a ring_allreduce, direct_allreduce or gather_allreduce.
[[nodiscard]] std::unique_ptr<Collective> allreduce_between(
    Algorithm algorithm, Transport& transport, Workspace& workspace, fusion::FusedView view,
    const Reduction& reduction, int ranks, base::Bytes segment, int tag);

}  // namespace ronde::collectives
