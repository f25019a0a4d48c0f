// SPDX-License-Identifier: Apache-2.0
// A batch of tensors read as one long vector, without ever building that vector: algorithms ask for
// a range of a chunk and get the places in the user's memory where its bytes lie.
//
//   tensors   A = a0 a1 a2 | B = b0 b1 | C = c0          (2 chunks of each, as in chunks.h)
//   chunk 0   a0 a1   b0   c0                            chunk 1   a2   b1
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/numbers.h"
#include "base/tensor.h"
#include "fusion/chunks.h"

namespace ronde::fusion {

// Bytes of one chunk of a view.
struct ViewPart {
  int chunk = 0;
  ByteRange range;
};

// Thread safety: immutable after construction; the memory it points at is the user's.
class FusedView {
 public:
  // Tensors of one dtype, each cut into chunks by itself.
  FusedView(const std::vector<base::TensorView>& tensors, int chunks);

  // Chunk c is exactly block c: for operations where each rank owns a block. A block that this rank
  // does not contribute has no input.
  static FusedView of_chunks(base::DType dtype, const std::vector<base::TensorView>& blocks);

  // The same memory in another order: chunk i is parts[i] of the source, one after another. A part
  // splits no element. The source may be gone afterwards.
  static FusedView of_parts(const FusedView& source,
                            const std::vector<std::vector<ViewPart>>& parts);

  // This view, but only chunk `own` has an output, which lies at `memory` in one piece: for a
  // reduce-scatter into engine memory.
  [[nodiscard]] FusedView with_output_at(int own, std::byte* memory) const;
  // This view, but only chunk `own` has an input, which lies at `memory` in one piece: for an
  // allgather out of engine memory.
  [[nodiscard]] FusedView with_input_at(int own, const std::byte* memory) const;

  // This view with the outputs as inputs: a later phase reads what an earlier one put there.
  [[nodiscard]] FusedView with_outputs_as_inputs() const;

  [[nodiscard]] base::DType dtype() const { return dtype_; }
  [[nodiscard]] int chunks() const { return chunks_; }
  [[nodiscard]] base::Bytes bytes() const { return bytes_; }
  [[nodiscard]] base::Bytes chunk_bytes(int chunk) const;
  [[nodiscard]] base::Bytes largest_chunk() const;

  // Copies from the user's inputs to the engine.
  void copy_in(int chunk, std::int64_t offset, std::span<std::byte> to) const;
  // Copies from the engine to the user's outputs; skips tensors without an output.
  void copy_out(int chunk, std::int64_t offset, std::span<const std::byte> from) const;
  // Copies from the user's inputs to the outputs, where these are two places.
  void copy_across(int chunk, std::int64_t offset, std::int64_t length) const;

  // Calls f(input, output, bytes) for each contiguous fragment of bytes [offset, offset + length)
  // of a chunk, in order. Fragments never split an element as long as the range does not.
  template <class F>
  void for_each_fragment(int chunk, std::int64_t offset, std::int64_t length, F&& f) const;

 private:
  // The part of one tensor that lies in one chunk; empty parts are left out.
  struct Piece {
    std::int64_t end;  // counted from the beginning of the chunk
    std::int64_t bytes;
    const std::byte* input;
    std::byte* output;
  };

  FusedView(int chunks, base::DType dtype) : dtype_(dtype), chunks_(chunks) {}
  void add_piece(const std::byte* input, std::byte* output, std::int64_t bytes);
  void end_chunk() { chunk_ends_.push_back(pieces_.size()); }
  [[nodiscard]] std::span<const Piece> pieces(int chunk) const;
  [[nodiscard]] std::span<Piece> pieces(int chunk);

  base::DType dtype_;
  int chunks_;
  base::Bytes bytes_;
  std::vector<Piece> pieces_;  // chunk-major
  std::vector<std::size_t> chunk_ends_;
};

template <class F>
void FusedView::for_each_fragment(int chunk, std::int64_t offset, std::int64_t length,
                                  F&& f) const {
  if (length == 0) return;
  const std::span<const Piece> all = pieces(chunk);
  auto piece = std::upper_bound(all.begin(), all.end(), offset,
                                [](std::int64_t at, const Piece& p) { return at < p.end; });
  while (length > 0) {
    base::check(piece != all.end(), "FusedView: the range ends beyond its chunk");
    const std::int64_t skip = offset - (piece->end - piece->bytes);
    const std::int64_t bytes = std::min(length, piece->bytes - skip);
    f(piece->input == nullptr ? nullptr : piece->input + skip,
      piece->output == nullptr ? nullptr : piece->output + skip, bytes);
    offset += bytes;
    length -= bytes;
    ++piece;
  }
}

}  // namespace ronde::fusion
