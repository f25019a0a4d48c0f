// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the pack kernel: many pieces of memory, of any sizes, as tiles of equal length,
// so that every part of a device has as much to copy, whatever the sizes are. Pure; the kernel and
// its tests share it.
//
//   piece   0: ████████████ 1: ██ 2: █ 3: ███████
//   tiles      0000 1111 2222   33   4   5555 666
//
// A tile never spans two pieces: the kernel reads one descriptor and then only copies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/numbers.h"

namespace ronde::fusion {

// One piece as the kernel sees it. `elements` are of the type that is read.
struct PackPiece {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t elements = 0;
};

// Pieces of one launch with the number of their first tile. Thread safety: immutable.
class TilePlan {
 public:
  // Pieces without elements have no tile.
  TilePlan(std::span<const PackPiece> pieces, std::int64_t tile_elements);

  [[nodiscard]] std::int64_t tiles() const { return first_tile_.back(); }
  [[nodiscard]] std::int64_t tile_elements() const { return tile_elements_; }
  // One number for each piece, and after the last piece the number of all tiles: never decreasing.
  [[nodiscard]] std::span<const std::int64_t> first_tiles() const { return first_tile_; }

 private:
  std::int64_t tile_elements_;
  std::vector<std::int64_t> first_tile_;
};

#if defined(__CUDACC__)
#define RONDE_HOST_DEVICE __host__ __device__
#else
#define RONDE_HOST_DEVICE
#endif

// Finds, by binary search, the last piece whose first tile is at most `tile`. `first_tiles` has one
// entry more than there are pieces.
template <class Index>
RONDE_HOST_DEVICE constexpr std::int64_t piece_of_tile(const Index* first_tiles,
                                                       std::int64_t pieces, std::int64_t tile) {
  std::int64_t low = 0;
  std::int64_t high = pieces;  // first_tiles[low] <= tile < first_tiles[high]
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    if (static_cast<std::int64_t>(first_tiles[middle]) <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace ronde::fusion
