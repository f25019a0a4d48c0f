// SPDX-License-Identifier: Apache-2.0
// How pieces are numbered in tiles; the part of the arithmetic that only the host runs.
#include "fusion/tiles.h"

#include "base/check.h"

namespace ronde::fusion {

TilePlan::TilePlan(std::span<const PackPiece> pieces, std::int64_t tile_elements)
    : tile_elements_(tile_elements) {
  base::check(tile_elements > 0, "TilePlan: a tile has elements");
  first_tile_.reserve(pieces.size() + 1);
  std::int64_t next = 0;
  for (const PackPiece& piece : pieces) {
    first_tile_.push_back(next);
    next += base::ceil_div(piece.elements, tile_elements);
  }
  first_tile_.push_back(next);
}

}  // namespace ronde::fusion
