// SPDX-License-Identifier: Apache-2.0
// The two data planes of a host: both do every operation, each sums in the order of its shape, and
// settings decide how windows are cut.
#include "collectives/plane/plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/transport/local.h"
#include "test/unit/collectives/boards.h"
#include "test/unit/collectives/in_host/scenario.h"
#include "test/unit/collectives/plane/planes.h"

namespace ronde::collectives {
namespace {

using base::DType;
using base::ReduceOp;
using base::Status;
using base::TensorView;
using testing::HasSubstr;
using testing::Not;

constexpr std::int32_t kRanks = 3;

base::Config config_of(const std::vector<std::string>& environment) {
  auto config = base::Config::from_environment(environment, nullptr);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

// The planes of all ranks, stepped in turn by one thread.
class Planes {
 public:
  explicit Planes(bool ring, const Algorithm& algorithm = *algorithm_of("ring"))
      : hub_(std::make_shared<LocalHub>(kRanks)) {
    BoardGeometry geometry = small(kRanks);
    geometry.arena_bytes = 1 << 20;
    boards_ = make_boards(geometry);
    for (std::int32_t rank = 0; rank < kRanks; ++rank) {
      workspaces_.push_back(std::make_unique<Workspace>());
      transports_.push_back(std::make_unique<Transport>(local_transport(hub_, rank)));
      planes_.push_back(ring ? make_message_plane(*transports_.back(), *workspaces_.back(),
                                                  base::Bytes(256), algorithm)
                             : make_in_host_plane(boards_[static_cast<std::size_t>(rank)], false));
    }
  }
  ~Planes() {
    planes_.clear();
    transports_.clear();
  }
  Planes(const Planes&) = delete;
  Planes& operator=(const Planes&) = delete;

  [[nodiscard]] DataPlane& of(std::size_t rank) { return *planes_[rank]; }
  [[nodiscard]] const Board& board() const { return boards_[0]; }

  // Runs the exchanges of all ranks until all are done.
  void run(const std::function<Exchange(std::size_t)>& exchange) {
    run_planes(planes_.size(), [&](std::size_t rank) { return of(rank).make(exchange(rank)); });
  }

 private:
  std::shared_ptr<LocalHub> hub_;
  std::vector<Board> boards_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<DataPlane>> planes_;
};

Memories random_memories(std::int64_t elements) {
  std::mt19937_64 random(11);
  Memories all;
  for (std::int32_t rank = 0; rank < kRanks; ++rank) {
    all.push_back(oracle::random_elements(DType::kF32, elements, random));
  }
  return all;
}

class DataPlaneTest : public testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] static bool ring() { return GetParam(); }
};

// There are more batches than tags, so that tags are used again.
TEST_P(DataPlaneTest, AllreduceSumsInTheOrderOfItsShape) {
  Planes planes(ring());
  const Reduction what{.dtype = DType::kF32, .op = ReduceOp::kAverage, .prescale = 0.3};
  const Memories inputs = random_memories(30000);
  const Memory expected = ring() ? oracle::ring_tensor(what, inputs) : host_sum(what, inputs);
  for (const std::uint64_t sequence :
       {std::uint64_t{0}, std::uint64_t{1023}, std::uint64_t{1024}, std::uint64_t{1} << 40}) {
    Memories outputs = inputs;
    planes.run([&](std::size_t rank) {
      return allreduce({view(&outputs[rank], &outputs[rank])}, what, false, sequence);
    });
    for (const Memory& output : outputs) EXPECT_EQ(output, expected);
  }
}

TEST_P(DataPlaneTest, BroadcastAndBarrier) {
  Planes planes(ring());
  Memories outputs = random_memories(1000);
  const Memory expected = outputs[2];
  planes.run(
      [&](std::size_t rank) { return broadcast(view(&outputs[rank], &outputs[rank]), 2, 1); });
  for (const Memory& output : outputs) EXPECT_EQ(output, expected);
  planes.run([&](std::size_t) { return barrier(2); });
}

TEST_P(DataPlaneTest, AllgatherAndReduceScatter) {
  Planes planes(ring());
  const Memories blocks = random_memories(700);
  const std::vector<std::int64_t> rows(kRanks, 700);
  Memories gathered(kRanks);
  planes.run([&](std::size_t rank) {
    return of_rows(base::Operation::kAllgather, blocks[rank], rows, gathered[rank], 1);
  });
  Memory all;
  for (const Memory& block : blocks) all.insert(all.end(), block.begin(), block.end());
  for (const Memory& one : gathered) EXPECT_EQ(one, all);

  // Every rank has the same input for all blocks: a ring sums block r in an order of its own.
  const Reduction what{.dtype = DType::kF32, .op = ReduceOp::kSum};
  Memories sums(kRanks, Memory(blocks[0].size()));
  Memories inputs(kRanks);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (int to = 0; to < kRanks; ++to) {
      inputs[rank].insert(inputs[rank].end(), blocks[rank].begin(), blocks[rank].end());
    }
  }
  planes.run([&](std::size_t rank) {
    return of_rows(base::Operation::kReduceScatter, inputs[rank], rows, sums[rank], 2, what);
  });
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(sums[rank], ring() ? oracle::ring_block(what, blocks, static_cast<int>(rank))
                                 : host_sum(what, blocks));
  }
}

TEST_P(DataPlaneTest, AllToAll) {
  Planes planes(ring());
  // Rank r sends r + 1 rows of 4 bytes, marked with its number, to all ranks.
  Memories inputs;
  Memories outputs(kRanks);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    inputs.emplace_back((rank + 1) * 4 * kRanks, static_cast<std::byte>(rank));
  }
  planes.run([&](std::size_t rank) {
    const std::vector<std::int64_t> rows(kRanks, static_cast<std::int64_t>(rank) + 1);
    return of_rows(base::Operation::kAllToAll, inputs[rank], rows, outputs[rank], 1);
  });
  Memory expected;
  for (std::size_t from = 0; from < kRanks; ++from) {
    expected.insert(expected.end(), (from + 1) * 4, static_cast<std::byte>(from));
  }
  for (const Memory& output : outputs) EXPECT_EQ(output, expected);
}

INSTANTIATE_TEST_SUITE_P(Planes, DataPlaneTest, testing::Bool(),
                         [](const auto& one) { return std::string(one.param ? "Ring" : "Host"); });

// Returns the tuning that the leader publishes with these settings, and its description.
std::pair<SlotTuning, std::string> tuned(const std::vector<std::string>& settings) {
  Planes planes(false);
  const base::Config config = config_of(settings);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_TRUE(planes.of(rank)
                      .tune(config,
                            [] {
                              std::this_thread::yield();
                              return Status();
                            })
                      .ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return {planes.board().tuning().value(), planes.of(kRanks - 1).description()};
}

TEST(InHostPlane, SettingsDecideHowWindowsAreCut) {
  const auto [tuning, text] = tuned({"RONDE_PIECE_BYTES=1000", "RONDE_STORES=streaming"});
  EXPECT_EQ(tuning.piece_bytes, 1024) << "whole lines";
  EXPECT_EQ(tuning.store, StoreKind::kStreaming);
  EXPECT_THAT(text, HasSubstr("pieces of at most 1024 bytes, streaming stores"));
  EXPECT_THAT(text, Not(HasSubstr("best of")));
}

TEST(InHostPlane, OneSettingLeavesTheOtherOpen) {
  EXPECT_EQ(tuned({"RONDE_STORES=streaming"}).first.store, StoreKind::kStreaming);
  EXPECT_EQ(tuned({"RONDE_PIECE_BYTES=4096"}).first.piece_bytes, 4096);
  EXPECT_EQ(tuned({}).first.store, StoreKind::kTemporal);
}

// Tells whether the slots of a rank hold anything but the places of tensors.
bool slots_hold_numbers(const Board& board) {
  const Slots slots(board);
  for (std::int32_t rank = 0; rank < kRanks; ++rank) {
    for (const std::uint64_t window : {0U, 1U}) {
      const std::span all(slots.buffer(rank, window),
                          static_cast<std::size_t>(slots.buffer_bytes()));
      const auto numbers = all.subspan(64);
      if (std::any_of(numbers.begin(), numbers.end(),
                      [](std::byte one) { return one != std::byte{0}; })) {
        return true;
      }
    }
  }
  return false;
}

TEST(InHostPlane, TensorsOnTheBoardAreSummedWhereTheyLie) {
  const Reduction what{.dtype = DType::kF32, .op = ReduceOp::kSum};
  const Memories inputs = random_memories(30000);
  const Memory expected = host_sum(what, inputs);
  for (const bool on_board : {true, false}) {
    Planes planes(false);
    const auto arena = [&](std::size_t rank) {
      return planes.board().arena(static_cast<std::int32_t>(rank)).first(inputs[rank].size());
    };
    planes.run([&](std::size_t rank) {
      std::copy(inputs[rank].begin(), inputs[rank].end(), arena(rank).begin());
      const TensorView view{arena(rank).data(), arena(rank).data(), base::Elements(30000),
                            DType::kF32};
      return allreduce({view}, what, on_board, 1);
    });
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), arena(rank).begin()));
    }
    EXPECT_EQ(slots_hold_numbers(planes.board()), !on_board);
  }
}

TEST(InHostPlane, WhatTheLeaderPublishedIsUsed) {
  Planes planes(false);
  planes.board().publish_tuning({256, StoreKind::kStreaming});
  EXPECT_TRUE(planes.of(1).tune(config_of({}), [] { return Status(); }).ok());
  EXPECT_THAT(planes.of(1).description(),
              HasSubstr("pieces of at most 256 bytes, streaming stores"));
}

TEST(InHostPlane, TuningEndsWithTheErrorOfWhoWaits) {
  Planes planes(false);
  const Status status = planes.of(1).tune(config_of({}), [] {
    return Status::error(base::Code::kDeadline, "the leader did not come");
  });
  EXPECT_EQ(status.message(), "the leader did not come");
}

TEST(InHostPlane, WhoAskedIsRung) {
  Planes planes(false);
  planes.of(1).want_rings(true);
  const auto collective = planes.of(0).make(barrier(1)).value();
  ASSERT_TRUE(collective->step().ok());
  EXPECT_EQ(planes.board().doorbell(1).rings(), 1U);
  EXPECT_EQ(planes.board().doorbell(2).rings(), 0U);
}

// All sum in the order of the ring, and so give its bits.
TEST(MessagePlane, RunsEveryAlgorithm) {
  const Reduction what{.dtype = DType::kF32, .op = ReduceOp::kAverage, .postscale = 1.7};
  const Memories inputs = random_memories(3000);
  const Memory expected = oracle::ring_tensor(what, inputs);
  for (const Algorithm& algorithm : algorithms()) {
    Planes planes(true, algorithm);
    Memories outputs = inputs;
    planes.run([&](std::size_t rank) {
      return allreduce({view(&outputs[rank], &outputs[rank])}, what, false, 1);
    });
    for (const Memory& output : outputs) EXPECT_EQ(output, expected);
    EXPECT_THAT(planes.of(0).description(),
                HasSubstr("as RONDE_ALGORITHM=" + std::string(algorithm.name) + " asks"));
  }
}

TEST(MessagePlane, DescribesItself) {
  Planes planes(true);
  EXPECT_THAT(planes.of(0).description(), HasSubstr("every rank counts as a host"));
  EXPECT_TRUE(planes.of(0).tune(config_of({}), [] { return Status(); }).ok());
}

}  // namespace
}  // namespace ronde::collectives
