// SPDX-License-Identifier: Apache-2.0
// The data plane of several hosts: every operation, over jobs of several shapes in one thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/plane/plane.h"
#include "collectives/transport/local.h"
#include "test/unit/collectives/job_of_hosts.h"
#include "test/unit/collectives/plane/planes.h"

namespace ronde::collectives {
namespace {

using base::DType;
using base::JobShape;
using base::ReduceOp;
using base::Status;
using base::TensorView;
using testing::HasSubstr;
using testing::StartsWith;
using Memory = std::vector<std::byte>;
using Memories = std::vector<Memory>;

base::Config config_of(const std::vector<std::string>& environment) {
  auto config = base::Config::from_environment(environment, nullptr);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

// The planes of all ranks, stepped in turn by one thread.
class Planes {
 public:
  explicit Planes(const JobShape& shape, const std::vector<std::string>& settings = {})
      : hub_(std::make_shared<LocalHub>(shape.ranks())) {
    const base::Config config = config_of(settings);
    std::vector<std::vector<Board>> boards;
    for (std::int32_t host = 0; host < shape.hosts(); ++host) {
      const auto here = static_cast<std::int32_t>(shape.ranks_of(host).size());
      boards.push_back(make_boards(small(here)));
    }
    for (std::int32_t rank = 0; rank < shape.ranks(); ++rank) {
      const auto& of_host = boards[static_cast<std::size_t>(shape.host_of(rank))];
      const auto& board = of_host[static_cast<std::size_t>(shape.position_of(rank))];
      workspaces_.push_back(std::make_unique<Workspace>());
      transports_.push_back(std::make_unique<Transport>(local_transport(hub_, rank)));
      planes_.push_back(make_two_level_plane(board, false, shape, *transports_.back(),
                                             *workspaces_.back(), config));
      // The leader publishes before any other rank asks.
      EXPECT_TRUE(planes_.back()->tune(config, [] { return Status(); }).ok());
    }
  }
  ~Planes() {
    planes_.clear();
    transports_.clear();
  }
  Planes(const Planes&) = delete;
  Planes& operator=(const Planes&) = delete;

  [[nodiscard]] std::size_t size() const { return planes_.size(); }
  [[nodiscard]] DataPlane& of(std::size_t rank) { return *planes_[rank]; }

  // Runs the exchanges of all ranks until all are done.
  void run(const std::function<Exchange(std::size_t)>& exchange) {
    run_planes(size(), [&](std::size_t rank) { return of(rank).make(exchange(rank)); });
  }

 private:
  std::shared_ptr<LocalHub> hub_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<DataPlane>> planes_;
};

Memories random_memories(std::size_t ranks, std::int64_t elements) {
  std::mt19937_64 random(11);
  Memories all;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    all.push_back(oracle::random_elements(DType::kF32, elements, random));
  }
  return all;
}

class TwoLevelPlaneTest : public testing::TestWithParam<std::vector<std::int32_t>> {
 protected:
  [[nodiscard]] static JobShape shape() { return shape_of(GetParam()); }
};

// There are more batches than tags, so that tags are used again.
TEST_P(TwoLevelPlaneTest, AllreduceSumsInTheOrderOfItsShape) {
  const Reduction what{.dtype = DType::kF32, .op = ReduceOp::kAverage, .prescale = 0.3};
  for (const char* const algorithm : {"auto", "ring", "direct", "gather"}) {
    Planes planes(shape(), {std::string("RONDE_ALGORITHM=") + algorithm});
    for (const std::int64_t elements : {3, 3000, 200'000}) {
      const Memories inputs = random_memories(planes.size(), elements);
      const Memory expected = oracle::shaped_tensor(what, hosts_of(shape()), inputs);
      for (const std::uint64_t sequence : {std::uint64_t{1023}, std::uint64_t{1024}}) {
        Memories outputs = inputs;
        planes.run([&](std::size_t rank) {
          return allreduce({view(&outputs[rank], &outputs[rank])}, what, true, sequence);
        });
        for (const Memory& output : outputs) ASSERT_TRUE(output == expected) << algorithm;
      }
    }
  }
}

TEST_P(TwoLevelPlaneTest, BroadcastAndBarrier) {
  Planes planes(shape());
  std::uint64_t sequence = 1;
  for (std::size_t root = 0; root < planes.size(); ++root) {
    for (const std::int64_t elements : {0, 1, 600'000}) {
      const Memories inputs = random_memories(planes.size(), elements);
      for (const bool in_place : {true, false}) {
        Memories outputs = in_place ? inputs : Memories(planes.size(), Memory(inputs[0].size()));
        planes.run([&](std::size_t rank) {
          const TensorView tensor = view(in_place ? &outputs[rank] : &inputs[rank], &outputs[rank]);
          return broadcast(tensor, static_cast<std::int32_t>(root), sequence);
        });
        ++sequence;
        for (const Memory& output : outputs) ASSERT_TRUE(output == inputs[root]) << root;
      }
    }
    planes.run([&](std::size_t) { return barrier(sequence); });
    ++sequence;
  }
}

TEST_P(TwoLevelPlaneTest, NobodyPassesABarrierBeforeAllHaveCome) {
  Planes planes(shape());
  for (std::size_t late = 0; late < planes.size(); ++late) {
    std::vector<DataPlane::CollectivePtr> open;
    for (std::size_t rank = 0; rank < planes.size(); ++rank) {
      open.push_back(planes.of(rank).make(barrier(late)).value());
    }
    for (int round = 0; round < 100; ++round) {
      for (std::size_t rank = 0; rank < planes.size(); ++rank) {
        if (rank == late) continue;
        const auto result = open[rank]->step();
        ASSERT_TRUE(result.ok());
        ASSERT_NE(*result, StepResult::kDone) << "rank " << rank << " before " << late;
      }
    }
    std::size_t left = planes.size();
    for (int round = 0; left > 0; ++round) {
      ASSERT_LT(round, 1000) << "stuck";
      for (auto& one : open) {
        if (one == nullptr || one->step().value() != StepResult::kDone) continue;
        one.reset();
        --left;
      }
    }
  }
}

TEST_P(TwoLevelPlaneTest, AllgatherOfDifferingBlocks) {
  Planes planes(shape());
  for (const std::int64_t longest : {3, 700, 600'000}) {
    Memories blocks = random_memories(planes.size(), longest);
    for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
      blocks[rank].resize(blocks[rank].size() / 4 * (rank % 3) / 2 * 4);
    }
    std::vector<std::int64_t> rows;
    for (const Memory& block : blocks) rows.push_back(std::ssize(block) / 4);
    Memories gathered(planes.size());
    planes.run([&](std::size_t rank) {
      return of_rows(base::Operation::kAllgather, blocks[rank], rows, gathered[rank], 1);
    });
    Memory expected;
    for (const Memory& block : blocks) {
      expected.insert(expected.end(), block.begin(), block.end());
    }
    for (const Memory& one : gathered) ASSERT_TRUE(one == expected) << longest;
  }
}

TEST_P(TwoLevelPlaneTest, ReduceScatterOfDifferingBlocksSumsInTheOrderOfItsShape) {
  const Reduction what{.dtype = DType::kF32, .op = ReduceOp::kAverage, .prescale = 0.3};
  for (const char* const algorithm : {"auto", "ring", "direct", "gather"}) {
    Planes planes(shape(), {std::string("RONDE_ALGORITHM=") + algorithm});
    const std::size_t ranks = planes.size();
    for (const std::int64_t longest : {3, 700, 100'000}) {
      // By block, and then by rank.
      std::vector<Memories> inputs;
      for (std::size_t block = 0; block < ranks; ++block) {
        inputs.push_back(random_memories(ranks, longest * static_cast<std::int64_t>(block % 3)));
      }
      Memories sums;
      Memories whole(ranks);
      std::vector<std::int64_t> rows;
      for (const Memories& block : inputs) {
        sums.emplace_back(block[0].size());
        rows.push_back(std::ssize(block[0]) / 4);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          whole[rank].insert(whole[rank].end(), block[rank].begin(), block[rank].end());
        }
      }
      planes.run([&](std::size_t rank) {
        return of_rows(base::Operation::kReduceScatter, whole[rank], rows, sums[rank], 2, what);
      });
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        ASSERT_TRUE(sums[rank] == oracle::shaped_block(what, hosts_of(shape()), inputs[rank],
                                                       static_cast<int>(rank)))
            << algorithm << ", " << longest << ", rank " << rank;
      }
    }
  }
}

TEST_P(TwoLevelPlaneTest, AllToAll) {
  Planes planes(shape());
  const std::size_t ranks = planes.size();
  const Memories blocks = random_memories(ranks, 700);
  Memories outputs(ranks);
  const std::vector<std::int64_t> rows(ranks, 2);
  planes.run([&](std::size_t rank) {
    return of_rows(base::Operation::kAllToAll, blocks[rank], rows, outputs[rank], 3);
  });
  for (std::size_t to = 0; to < ranks; ++to) {
    for (std::size_t from = 0; from < ranks; ++from) {
      EXPECT_TRUE(std::equal(outputs[to].data() + from * 8, outputs[to].data() + from * 8 + 8,
                             blocks[from].data() + to * 8));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, TwoLevelPlaneTest,
                         testing::Values(std::vector<std::int32_t>{0, 1, 2},
                                         std::vector<std::int32_t>{0, 0, 2, 2},
                                         std::vector<std::int32_t>{0, 1, 0, 1},
                                         std::vector<std::int32_t>{0, 0, 0, 3},
                                         std::vector<std::int32_t>{0, 1, 1, 1, 0, 5}),
                         [](const auto& of) { return name_of_leaders(of.param); });

TEST(TwoLevelPlane, SaysWhatWasChosenAndWhy) {
  const auto text = [](const std::vector<std::int32_t>& leaders, const std::string& algorithm) {
    Planes planes(shape_of(leaders), {"RONDE_ALGORITHM=" + algorithm});
    return planes.of(leaders.size() - 1).description();
  };
  EXPECT_THAT(text({0, 0, 2, 2}, "auto"),
              StartsWith("hosts: gather up to 61440 bytes, the ring above; 2 hosts x 2 ranks; "
                         "pieces of at most "));
  EXPECT_THAT(text({0, 1, 2, 3}, "auto"),
              "hosts: gather up to 4267 bytes, direct up to 53333, the ring above; "
              "4 hosts x 1 rank");
  EXPECT_THAT(text({0, 1, 2}, "auto"),
              "hosts: gather up to 7286 bytes, direct up to 30000, the ring above; "
              "3 hosts x 1 rank");
  EXPECT_THAT(text({0, 0, 2}, "direct"),
              HasSubstr("the direct, as RONDE_ALGORITHM=direct asks; hosts of 2 + 1 ranks"));
}

}  // namespace
}  // namespace ronde::collectives
