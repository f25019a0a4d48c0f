// SPDX-License-Identifier: Apache-2.0
// When the slots of a process set grow, and what the ranks of a host wait for then.
#include "runtime/sets/growing_plane.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/board/shared_memory.h"

namespace ronde::runtime {
namespace {

using base::Result;
using base::Status;
using collectives::Board;
using collectives::Collective;
using collectives::Exchange;
using collectives::StepResult;

constexpr std::int64_t kSmall = 1'000;
constexpr std::int64_t kPlace = 4'096;

class DoneAtOnce final : public Collective {
 public:
  Result<StepResult> step() override { return StepResult::kDone; }
};

// Counts what it makes.
class CountingPlane final : public collectives::DataPlane {
 public:
  explicit CountingPlane(int& made) : made_(made) {}
  Result<CollectivePtr> make(const Exchange& /*exchange*/) override {
    ++made_;
    return CollectivePtr(std::make_unique<DoneAtOnce>());
  }
  Status tune(const base::Config& /*config*/, const std::function<Status()>& /*idle*/) override {
    return {};
  }
  void want_rings(bool wanted) override { wants_ = wanted; }
  [[nodiscard]] std::string description() const override { return wants_ ? "rings" : "none"; }

 private:
  int& made_;
  bool wants_ = false;
};

Exchange exchange_of(base::Operation operation, std::int64_t elements) {
  Exchange exchange;
  exchange.operation = operation;
  base::TensorView view;
  view.elements = base::Elements(elements);
  exchange.tensors = {view};
  return exchange;
}

// A rank of two on one host: made[0] counts what its first plane makes, made[1] the larger one.
struct GrowingRank {
  GrowingRank(const Board& board, Result<std::int64_t> place)
      : plane(board,
              SlotGrowth{base::Bytes(kSmall), [place] { return place; },
                         [board](std::int64_t at) -> Result<Board> {
                           EXPECT_EQ(at, kPlace);
                           return board;
                         }},
              config, [this](const Board& /*board*/) {
                return std::make_unique<CountingPlane>(made[planes++]);
              }) {}

  StepResult step_one(base::Operation operation, std::int64_t elements) {
    const auto collective = plane.make(exchange_of(operation, elements));
    return (*collective)->step().value();
  }

  base::Config config;
  std::size_t planes = 0;
  int made[2] = {0, 0};
  GrowingPlane plane;
};

class GrowingPlaneTest : public ::testing::Test {
 protected:
  void make(Result<std::int64_t> place) {
    collectives::BoardGeometry geometry;
    geometry.ranks = 2;
    const auto memory = collectives::SharedMemory::create_heap(Board::size_of(geometry)).value();
    ASSERT_TRUE(Board::format(*memory, geometry).ok());
    const auto fds = collectives::make_event_fds(2).value();
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      ranks_[rank] = std::make_unique<GrowingRank>(Board::attach(memory, rank, fds).value(), place);
    }
  }

  std::unique_ptr<GrowingRank> ranks_[2];
};

TEST_F(GrowingPlaneTest, TheFirstTensorThatIsTooLargeWaitsForTheLeader) {
  make(kPlace);
  GrowingRank& leader = *ranks_[0];
  GrowingRank& other = *ranks_[1];
  EXPECT_EQ(other.step_one(base::Operation::kAllreduce, kSmall / 4), StepResult::kDone);
  other.plane.want_rings(true);
  const auto waits = other.plane.make(exchange_of(base::Operation::kAllreduce, kSmall)).value();
  EXPECT_EQ(waits->step().value(), StepResult::kIdle);
  EXPECT_EQ(leader.step_one(base::Operation::kAllreduce, kSmall), StepResult::kProgress);
  EXPECT_EQ(waits->step().value(), StepResult::kProgress);
  EXPECT_EQ(waits->step().value(), StepResult::kDone);
  EXPECT_EQ(other.plane.description(), "rings");
  EXPECT_EQ(other.step_one(base::Operation::kBarrier, 0), StepResult::kDone);
  EXPECT_EQ(other.made[0], 1);
  EXPECT_EQ(other.made[1], 2);
  EXPECT_EQ(leader.made[0], 0);
  EXPECT_EQ(leader.made[1], 1);
}

TEST_F(GrowingPlaneTest, WithoutRoomTheSmallSlotsDo) {
  make(Status::error(base::Code::kOutOfMemory, "full"));
  for (const auto& rank : ranks_) {
    EXPECT_EQ(rank->step_one(base::Operation::kAllreduce, kSmall), StepResult::kProgress);
    EXPECT_EQ(rank->step_one(base::Operation::kAllreduce, kSmall), StepResult::kDone);
    EXPECT_EQ(rank->made[0], 2);
    EXPECT_EQ(rank->planes, 1U);
  }
}

TEST_F(GrowingPlaneTest, WhereOnlyARankKnowsItsRowsNothingGrows) {
  make(kPlace);
  EXPECT_EQ(ranks_[0]->step_one(base::Operation::kAllToAll, kSmall), StepResult::kDone);
  // What is gathered counts as a whole.
  Exchange gathered = exchange_of(base::Operation::kAllgather, 1);
  gathered.rows = {1, kSmall};
  gathered.row = base::Elements(1);
  const auto waits = ranks_[1]->plane.make(gathered).value();
  EXPECT_EQ(waits->step().value(), StepResult::kIdle);
}

}  // namespace
}  // namespace ronde::runtime
