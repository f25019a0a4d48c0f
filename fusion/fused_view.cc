// SPDX-License-Identifier: Apache-2.0
#include "fusion/fused_view.h"

#include <cstring>
#include <utility>

#include "fusion/chunks.h"

namespace ronde::fusion {

FusedView::FusedView(const std::vector<base::TensorView>& tensors, int chunks)
    : FusedView(chunks, tensors.empty() ? base::DType::kU8 : tensors.front().dtype) {
  base::check(chunks > 0, "FusedView: at least one chunk");
  chunk_ends_.reserve(static_cast<std::size_t>(chunks));
  for (const base::TensorView& tensor : tensors) {
    base::check(tensor.dtype == dtype_, "FusedView: tensors of one dtype only");
    bytes_ += tensor.bytes();
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (const base::TensorView& tensor : tensors) {
      const ByteRange range = chunk_of_tensor(tensor.bytes(), chunks, chunk);
      add_piece(tensor.input == nullptr ? nullptr : tensor.input + range.begin,
                tensor.output == nullptr ? nullptr : tensor.output + range.begin, range.length());
    }
    end_chunk();
  }
}

FusedView FusedView::of_chunks(base::DType dtype, const std::vector<base::TensorView>& blocks) {
  FusedView view(base::narrow<int>(blocks.size()), dtype);
  for (const base::TensorView& block : blocks) {
    base::check(block.dtype == dtype, "FusedView: blocks of one dtype only");
    view.bytes_ += block.bytes();
    view.add_piece(block.input, block.output, block.bytes().value());
    view.end_chunk();
  }
  return view;
}

FusedView FusedView::of_parts(const FusedView& source,
                              const std::vector<std::vector<ViewPart>>& parts) {
  FusedView view(base::narrow<int>(parts.size()), source.dtype());
  for (const std::vector<ViewPart>& chunk : parts) {
    for (const ViewPart& part : chunk) {
      source.for_each_fragment(part.chunk, part.range.begin, part.range.length(),
                               [&](const std::byte* input, std::byte* output, std::int64_t bytes) {
                                 view.add_piece(input, output, bytes);
                               });
      view.bytes_ += base::Bytes(part.range.length());
    }
    view.end_chunk();
  }
  return view;
}

FusedView FusedView::with_output_at(int own, std::byte* memory) const {
  FusedView view = *this;
  for (Piece& piece : view.pieces_) piece.output = nullptr;
  for (Piece& piece : view.pieces(own)) piece.output = memory + (piece.end - piece.bytes);
  return view;
}

FusedView FusedView::with_input_at(int own, const std::byte* memory) const {
  FusedView view = *this;
  for (Piece& piece : view.pieces_) piece.input = nullptr;
  for (Piece& piece : view.pieces(own)) piece.input = memory + (piece.end - piece.bytes);
  return view;
}

FusedView FusedView::with_outputs_as_inputs() const {
  FusedView view = *this;
  for (Piece& piece : view.pieces_) piece.input = piece.output;
  return view;
}

void FusedView::add_piece(const std::byte* input, std::byte* output, std::int64_t bytes) {
  if (bytes == 0) return;
  const bool first_of_chunk =
      chunk_ends_.empty() ? pieces_.empty() : chunk_ends_.back() == pieces_.size();
  const std::int64_t before = first_of_chunk ? 0 : pieces_.back().end;
  pieces_.push_back({.end = before + bytes, .bytes = bytes, .input = input, .output = output});
}

std::span<const FusedView::Piece> FusedView::pieces(int chunk) const {
  base::check(chunk >= 0 && chunk < chunks_, "FusedView: no such chunk");
  const auto index = static_cast<std::size_t>(chunk);
  const std::size_t begin = index == 0 ? 0 : chunk_ends_[index - 1];
  return {pieces_.data() + begin, chunk_ends_[index] - begin};
}

std::span<FusedView::Piece> FusedView::pieces(int chunk) {
  const std::span<const Piece> all = std::as_const(*this).pieces(chunk);
  return {pieces_.data() + (all.data() - pieces_.data()), all.size()};
}

base::Bytes FusedView::chunk_bytes(int chunk) const {
  const std::span<const Piece> all = pieces(chunk);
  return base::Bytes(all.empty() ? 0 : all.back().end);
}

base::Bytes FusedView::largest_chunk() const {
  base::Bytes largest;
  for (int chunk = 0; chunk < chunks_; ++chunk) largest = std::max(largest, chunk_bytes(chunk));
  return largest;
}

void FusedView::copy_in(int chunk, std::int64_t offset, std::span<std::byte> to) const {
  std::byte* next = to.data();
  for_each_fragment(chunk, offset, std::ssize(to),
                    [&](const std::byte* input, std::byte*, std::int64_t bytes) {
                      base::check(input != nullptr, "FusedView: nothing to copy in from");
                      std::memcpy(next, input, static_cast<std::size_t>(bytes));
                      next += bytes;
                    });
}

void FusedView::copy_out(int chunk, std::int64_t offset, std::span<const std::byte> from) const {
  const std::byte* next = from.data();
  for_each_fragment(chunk, offset, std::ssize(from),
                    [&](const std::byte*, std::byte* output, std::int64_t bytes) {
                      if (output != nullptr) {
                        std::memcpy(output, next, static_cast<std::size_t>(bytes));
                      }
                      next += bytes;
                    });
}

void FusedView::copy_across(int chunk, std::int64_t offset, std::int64_t length) const {
  for_each_fragment(chunk, offset, length,
                    [](const std::byte* input, std::byte* output, std::int64_t bytes) {
                      if (output != nullptr && output != input) {
                        std::memcpy(output, input, static_cast<std::size_t>(bytes));
                      }
                    });
}

}  // namespace ronde::fusion
