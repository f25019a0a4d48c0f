// SPDX-License-Identifier: Apache-2.0
// How many windows an allreduce takes, and where its first one lies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collectives/in_host/allreduce.h"
#include "test/unit/collectives/boards.h"

namespace ronde::collectives {
namespace {

// What the slots of a rank hold after one step of an allreduce of `elements` bytes.
struct LaidOut {
  std::uint64_t windows = 0;
  std::byte in_buffer{};
  std::byte beside_counter{};
};

LaidOut begin_allreduce(const BoardGeometry& geometry, std::int64_t elements) {
  Slots slots(make_boards(geometry)[0]);
  std::vector<std::byte> data(static_cast<std::size_t>(elements), std::byte{7});
  const base::TensorView view{data.data(), data.data(), base::Elements(elements), base::DType::kU8};
  const auto collective =
      in_host_allreduce(slots, fusion::FusedView({view}, 1),
                        {.dtype = base::DType::kU8, .op = base::ReduceOp::kSum}, SlotTuning{64});
  EXPECT_TRUE(collective->step().ok());
  return {slots.next_window(), *slots.buffer(0, 0), *slots.inline_bytes(0, 0)};
}

TEST(InHostCollectives, ASmallVectorTakesOneWindowHoweverItIsCut) {
  for (const std::int32_t ranks : {2, 4, 8}) {
    const BoardGeometry geometry = small(ranks);
    // The limit shrinks with the ranks, since every rank reads all contributions.
    const std::int64_t most = std::min(12 << 10, (64 << 10) / ranks);
    EXPECT_EQ(begin_allreduce(geometry, most).windows, 1U);
    EXPECT_EQ(begin_allreduce(geometry, most).in_buffer, std::byte{7});
    EXPECT_EQ(begin_allreduce(geometry, most + 1).windows, most / (64 * ranks) + 1);
  }
}

TEST(InHostCollectives, ATinyVectorTravelsBesideTheCounter) {
  constexpr std::int64_t kMost = Slots::kInlineBytes;
  const LaidOut tiny = begin_allreduce(small(2), kMost);
  EXPECT_EQ(tiny.beside_counter, std::byte{7});
  EXPECT_EQ(tiny.in_buffer, std::byte{0});
  const LaidOut more = begin_allreduce(small(2), kMost + 1);
  EXPECT_EQ(more.beside_counter, std::byte{0});
  EXPECT_EQ(more.in_buffer, std::byte{7});
}

}  // namespace
}  // namespace ronde::collectives
