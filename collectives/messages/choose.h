// SPDX-License-Identifier: Apache-2.0
// The algorithms for an allreduce or a reduce-scatter between hosts, as one table (choose.cc), and
// the choice among them. All of them give the same bits, so the choice decides about time alone.
// But all ranks must make the same choice, so it depends on sizes and the number of hosts only.
// Pure, but for the functions that make collectives.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/numbers.h"
#include "collectives/kernels/reduce.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// How an algorithm does one operation. `make` has the arguments of ring_allreduce, or those of
// ring_reduce_scatter.
struct Way {
  // The most bytes of a vector, as they travel between so many hosts, for which it is faster than
  // the algorithms in the rows below; 0: it never is.
  base::Bytes (*most)(int hosts);
  std::unique_ptr<Collective> (*make)(Transport& transport, Workspace& workspace,
                                      fusion::FusedView view, const Reduction& reduction, int ranks,
                                      base::Bytes segment, int tag);
};

struct Algorithm {
  std::string_view name;  // "ring", a word of RONDE_ALGORITHM
  Way allreduce;
  Way reduce_scatter;
};

// The table, from the algorithm for the shortest vectors to the ring, which is for any length.
//
// The limits come from a model of a line of 1 Gbit/s with TCP, where the choice matters most: a
// step costs 10 us, a message 12 us of the processors at its ends, and a byte 8 ns on the line that
// all ranks of a host share.
//
//            steps                 messages              times the bytes
//   gather   1, from 4 on log2 n   n-1, or log2 n        n-1
//   direct   2                     2(n-1)                2(n-1)/n, and a sixteenth more where
//                                                        several send to one rank at a time
//   ring     2(n-1)                2(n-1)                2(n-1)/n
//
// A reduce-scatter has the first half of the steps, messages and bytes of the ring or of direct, so
// that these two meet where their allreduces do. Gather has no such half: its row has direct's.
[[nodiscard]] std::span<const Algorithm> algorithms();

// Returns nullptr for a name that is not in the table, as "auto".
[[nodiscard]] const Algorithm* algorithm_of(std::string_view name);

// Returns the way of the named algorithm, or without one (nullptr) the fastest for a vector.
[[nodiscard]] const Way& choose_way(const Algorithm* named, Way Algorithm::*operation,
                                    base::Bytes on_wire, int hosts);

// Says what choose_way() takes for allreduces: "gather up to 61440 bytes, the ring above".
[[nodiscard]] std::string choice_text(const Algorithm* named, int hosts);

}  // namespace ronde::collectives
