// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/broadcast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "test/unit/collectives/job_of_ranks.h"

namespace ronde::collectives {
namespace {

TEST(BroadcastTree, ReachesEveryRankOnceFromEveryRoot) {
  for (int size = 1; size <= 64; ++size) {
    for (int root = 0; root < size; ++root) {
      for (const std::int64_t segments : {0, 1, 2, 5, 1000}) {
        std::vector<int> parents(at(size), -1);
        for (int rank = 0; rank < size; ++rank) {
          for (const int child : broadcast_tree(rank, size, root, segments).children) {
            ASSERT_EQ(parents[at(child)], -1) << "two parents";
            parents[at(child)] = rank;
          }
        }
        for (int rank = 0; rank < size; ++rank) {
          const BroadcastTree tree = broadcast_tree(rank, size, root, segments);
          ASSERT_EQ(tree.parent.value_or(-1), parents[at(rank)]);
          ASSERT_EQ(tree.parent.has_value(), rank != root);
          // The tree has no cycle: every rank's parents lead to the root.
          int above = rank;
          for (int step = 0; step < size && above != root; ++step) above = parents[at(above)];
          ASSERT_EQ(above, root);
        }
      }
    }
  }
}

TEST(BroadcastTree, IsShallowForOneSegmentAndAChainForMany) {
  const auto depth = [](int size, std::int64_t segments) {
    int deepest = 0;
    for (int rank = 0; rank < size; ++rank) {
      int steps = 0;
      for (int above = rank; above != 0; ++steps) {
        above = *broadcast_tree(above, size, 0, segments).parent;
      }
      deepest = std::max(deepest, steps);
    }
    return deepest;
  };
  for (int size = 4; size <= 64; ++size) {
    EXPECT_EQ(depth(size, 1), std::bit_width(static_cast<unsigned>(size)) - 1) << size;
    EXPECT_EQ(depth(size, 1000), size - 1);
  }
}

}  // namespace
}  // namespace ronde::collectives
