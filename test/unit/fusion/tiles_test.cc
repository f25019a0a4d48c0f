// SPDX-License-Identifier: Apache-2.0
// Tiles cover every element of every piece once, and are balanced.
#include "fusion/tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace ronde::fusion {
namespace {

std::vector<PackPiece> pieces_of(const std::vector<std::int64_t>& lengths) {
  std::vector<PackPiece> pieces;
  for (const std::int64_t length : lengths) pieces.push_back({nullptr, nullptr, length});
  return pieces;
}

// How often each element of each piece is in a tile.
void expect_covered(const std::vector<std::int64_t>& lengths, std::int64_t tile_elements) {
  const std::vector<PackPiece> pieces = pieces_of(lengths);
  const TilePlan plan(pieces, tile_elements);
  const auto count = static_cast<std::int64_t>(lengths.size());
  std::vector<std::int64_t> next(lengths.size(), 0);
  for (std::int64_t tile = 0; tile < plan.tiles(); ++tile) {
    const std::int64_t piece = piece_of_tile(plan.first_tiles().data(), count, tile);
    const auto index = static_cast<std::size_t>(piece);
    const std::int64_t begin = (tile - plan.first_tiles()[index]) * plan.tile_elements();
    ASSERT_EQ(begin, next[index]) << "tile " << tile;
    // Only the last tile of a piece is short.
    const std::int64_t length = std::min(plan.tile_elements(), lengths[index] - begin);
    ASSERT_GT(length, 0) << "tile " << tile;
    next[index] += length;
  }
  EXPECT_EQ(next, lengths);
}

TEST(Tiles, CoverEveryElementOnce) {
  expect_covered({}, 4);
  expect_covered({0}, 4);
  expect_covered({1}, 4);
  expect_covered({4, 5, 3, 8}, 4);
  expect_covered({0, 0, 7, 0, 1, 0}, 3);
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> lengths(random() % 40);
    for (std::int64_t& length : lengths) {
      length = static_cast<std::int64_t>(random() % 3 == 0 ? 0 : random() % 2000);
    }
    expect_covered(lengths, 1 + static_cast<std::int64_t>(random() % 300));
  }
}

TEST(Tiles, OfAHugePieceBesideSmallOnes) {
  const std::int64_t huge = std::int64_t{1} << 40;
  const std::vector<PackPiece> pieces = pieces_of({1, huge, 1});
  const TilePlan plan(pieces, 8192);
  EXPECT_EQ(plan.tiles(), 2 + huge / 8192);
  EXPECT_EQ(piece_of_tile(plan.first_tiles().data(), 3, plan.tiles() - 1), 2);
  EXPECT_EQ(piece_of_tile(plan.first_tiles().data(), 3, plan.tiles() - 2), 1);
}

}  // namespace
}  // namespace ronde::fusion
