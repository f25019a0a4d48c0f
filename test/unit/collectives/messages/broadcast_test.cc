// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/broadcast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <vector>

#include "test/unit/collectives/job_of_ranks.h"

namespace ronde::collectives {
namespace {

using base::Bytes;
using base::DType;
using base::Elements;
using base::TensorView;
using Memory = std::vector<std::byte>;

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

class BroadcastTest : public testing::TestWithParam<int> {
 protected:
  // Broadcasts tensors of these lengths. Ranks but the root have an output only, or are in place.
  static void expect_broadcast(JobOfRanks& job, const std::vector<std::int64_t>& lengths, int root,
                               bool in_place, std::int64_t segment, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Memory> source;
    for (const std::int64_t length : lengths) {
      Memory tensor(at(length));
      for (std::byte& b : tensor) b = static_cast<std::byte>(random());
      source.push_back(tensor);
    }
    std::vector<std::vector<Memory>> outputs(at(job.size()));
    std::vector<std::unique_ptr<Collective>> collectives;
    for (int rank = 0; rank < job.size(); ++rank) {
      std::vector<TensorView> tensors;
      for (const Memory& tensor : source) {
        const bool filled = rank == root && in_place;
        outputs[at(rank)].push_back(filled ? tensor : Memory(tensor.size()));
      }
      for (std::size_t i = 0; i < source.size(); ++i) {
        Memory& output = outputs[at(rank)][i];
        const std::byte* other = rank == root ? source[i].data() : nullptr;
        tensors.push_back({in_place ? output.data() : other, output.data(),
                           Elements(std::ssize(output)), DType::kU8});
      }
      collectives.push_back(broadcast(job.transport(rank), job.workspace(rank),
                                      fusion::FusedView(tensors, 1), root, Bytes(segment), 0));
    }
    job.expect_done(collectives, seed);
    for (int rank = 0; rank < job.size(); ++rank) {
      ASSERT_EQ(outputs[at(rank)], source) << "rank " << rank;
    }
  }
};

TEST_P(BroadcastTest, EveryLengthFromEveryRoot) {
  JobOfRanks job(GetParam());
  std::uint64_t seed = 0;
  for (int root = 0; root < job.size(); ++root) {
    for (const std::int64_t length : {0, 1, 2, 63, 64, 65, 1000, 4099}) {
      for (const std::int64_t segment : {64, 256, 1 << 20}) {
        expect_broadcast(job, {length}, root, seed % 2 == 0, segment, seed % 5);
        ASSERT_FALSE(HasFailure()) << length << " bytes, segments of " << segment;
        ++seed;
      }
    }
  }
}

TEST_P(BroadcastTest, FusedTensorsUnderDelaysAndSynchronousSends) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    JobOfRanks job(GetParam(), {.seed = seed,
                                .max_delay = static_cast<int>(seed % 4),
                                .synchronous_sends = seed % 2 == 0});
    expect_broadcast(job, {100, 0, 1, 777}, static_cast<int>(seed) % job.size(), seed % 3 == 0,
                     seed % 2 == 0 ? 64 : 512, seed);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST_P(BroadcastTest, ACutLinkIsAnErrorOnBothRanks) {
  if (GetParam() == 1) return;  // no links
  for (std::int64_t after = 0; after < 10; ++after) {
    JobOfRanks job(GetParam(), {.cuts = {{0, 1, after}}});
    std::vector<std::unique_ptr<Collective>> collectives;
    {
      std::vector<Memory> memory(at(job.size()), Memory(4000));
      for (int rank = 0; rank < job.size(); ++rank) {
        std::byte* bytes = memory[at(rank)].data();
        const TensorView tensor{bytes, bytes, Elements(4000), DType::kU8};
        collectives.push_back(broadcast(job.transport(rank), job.workspace(rank),
                                        fusion::FusedView({tensor}, 1), 0, Bytes(64), 0));
      }
      const std::vector<Outcome> outcomes = job.run(collectives, 1);
      EXPECT_EQ(outcomes[0].status.code(), base::Code::kTransport);
      EXPECT_EQ(outcomes[1].status.code(), base::Code::kTransport);
    }
    collectives.clear();
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, BroadcastTest, testing::Range(1, 9));

}  // namespace
}  // namespace ronde::collectives
