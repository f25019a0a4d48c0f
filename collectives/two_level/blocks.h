// SPDX-License-Identifier: Apache-2.0
// The arithmetic of blocks and slices, by which a job of several hosts cuts a vector. Pure.
//
//   chunk of L lines, K blocks        block k has L/K lines, the first L%K one more
//   block of n lines, S slices        slice i has n/S, the first n%S one more
//
// Every chunk is cut in this way, and block k is the k-th part of all of them; so each block is a
// small vector with a part of every host's chunk. The i-th rank of every host moves slice i.
// A line is 64 bytes; parts may be empty, and no element is ever split.
#pragma once

#include <cstdint>
#include <vector>

#include "base/numbers.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// Thread safety: immutable.
class BlockPlan {
 public:
  // Cuts the view into blocks whose slices have at most `block` bytes, but at least a line, of all
  // chunks together.
  BlockPlan(const fusion::FusedView& view, std::int32_t slices, base::Bytes block);

  [[nodiscard]] std::int64_t blocks() const { return blocks_; }
  [[nodiscard]] std::int32_t slices() const { return slices_; }
  [[nodiscard]] int chunks() const { return base::narrow<int>(chunk_bytes_.size()); }

  // The bytes of a chunk that a slice of a block has.
  [[nodiscard]] fusion::ByteRange part(std::int64_t block, std::int32_t slice, int chunk) const;
  // The parts of a slice in all chunks, without the empty ones.
  [[nodiscard]] std::vector<fusion::ViewPart> parts(std::int64_t block, std::int32_t slice) const;
  // The parts by the position of the rank that has the slice; none at positions without a slice.
  [[nodiscard]] std::vector<std::vector<fusion::ViewPart>> parts_by_position(
      std::int64_t block, std::int32_t positions) const;
  // The most bytes that a slice of a block has; a multiple of 64.
  [[nodiscard]] base::Bytes slice_bytes() const;

 private:
  [[nodiscard]] std::int64_t lines(int chunk) const;

  std::vector<std::int64_t> chunk_bytes_;
  std::int32_t slices_;
  std::int64_t blocks_ = 0;
};

}  // namespace ronde::collectives
