// SPDX-License-Identifier: Apache-2.0
// Broadcast: the root's bytes go to every rank, segment by segment, down a tree.
//
// Two trees, because the two ends of the range of sizes want opposite things. In a chain every rank
// sends each segment once, so a long vector takes the time of one copy however many ranks there
// are, but the first byte takes n-1 steps. In a binomial tree it takes log2(n) steps, but the root
// sends everything log2(n) times. Counting segments decides which one is cheaper:
//
//   chain     root ──► . ──► . ──► .        segments + n - 2 steps
//   binomial  root ──► . ──► .              segments * ceil(log2 n) steps
//                └───► .
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/numbers.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// The neighbours of a rank in the tree.
struct BroadcastTree {
  std::optional<int> parent;  // none for the root
  std::vector<int> children;  // in the order in which the rank sends to them
};

// Returns the place of a rank in the tree, which is the same on all ranks, since all know the
// number of segments. Pure.
[[nodiscard]] BroadcastTree broadcast_tree(int rank, int size, int root, std::int64_t segments);

// The view has one chunk. The root's input goes to every output, to the root's own too where that
// lies elsewhere. The transport, the workspace and the tensors must outlive the collective. Thread
// safety: that of Collective.
std::unique_ptr<Collective> broadcast(Transport& transport, Workspace& workspace,
                                      fusion::FusedView view, int root, base::Bytes segment,
                                      int tag);

}  // namespace ronde::collectives
