// SPDX-License-Identifier: Apache-2.0
// Allreduce in place on the board, but for the values of its results, which
// test/conformance/planes_test.cc compares.
#include "collectives/in_host/in_place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/board/arena.h"
#include "test/unit/collectives/boards.h"

namespace ronde::collectives {
namespace {

BoardGeometry with_arena(std::int32_t ranks, std::int64_t slot_bytes) {
  BoardGeometry geometry = small(ranks);
  geometry.slot_bytes = slot_bytes;
  geometry.arena_bytes = std::int64_t{64} << 20;
  return geometry;
}

// The part of a rank is larger than what one step sums.
TEST(InHostInPlace, ALargePartTakesSeveralSteps) {
  BoardGeometry geometry = with_arena(1, 4096);
  const std::vector<Board> boards = make_boards(geometry);
  Slots slots(boards[0]);
  Arena arena(boards[0].arena(0));
  constexpr std::int64_t kElements = (std::int64_t{2} << 20) + 3;
  const auto place = *arena.allocate(base::Bytes(kElements));
  std::fill(place.begin(), place.end(), std::byte{3});
  const auto collective = in_host_allreduce_in_place(
      slots, {{place.data(), place.data(), base::Elements(kElements), base::DType::kU8}},
      {base::DType::kU8, base::ReduceOp::kSum});
  int steps = 1;
  while (*collective->step() != StepResult::kDone) ++steps;
  EXPECT_EQ(steps, 4);
  EXPECT_TRUE(std::all_of(place.begin(), place.end(), [](auto b) { return b == std::byte{3}; }));
}

TEST(InHostInPlace, FitsAsManyTensorsAsASlotHoldsPlaces) {
  const std::vector<Board> boards = make_boards(with_arena(1, 128));
  const Slots slots(boards[0]);
  EXPECT_TRUE(fits_in_place(slots, 16));
  EXPECT_FALSE(fits_in_place(slots, 17));
}

TEST(InHostInPlace, RefusesMemoryOutsideTheArenaAndPlacesThatCannotBe) {
  const std::vector<Board> boards = make_boards(with_arena(2, 128));
  Slots mine(boards[0]);
  Slots other(boards[1]);
  std::vector<float> outside(1);
  auto* const bytes = reinterpret_cast<std::byte*>(outside.data());
  const Reduction sum{base::DType::kF32, base::ReduceOp::kSum};
  {
    Slots slots(boards[0]);
    const auto refused = in_host_allreduce_in_place(
                             slots, {{bytes, bytes, base::Elements(1), base::DType::kF32}}, sum)
                             ->step();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), base::Code::kInternal);
  }
  std::byte* const place = boards[0].arena(0).data();
  const auto collective =
      in_host_allreduce_in_place(mine, {{place, place, base::Elements(1), base::DType::kF32}}, sum);
  ASSERT_TRUE(collective->step().ok());
  const std::uint64_t nowhere = boards[0].arena(1).size() - 3;
  std::memcpy(other.buffer(1, 0), &nowhere, sizeof(nowhere));
  other.post_filled(0);
  const auto refused = collective->step();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("rank 1"), std::string::npos);
}

}  // namespace
}  // namespace ronde::collectives
