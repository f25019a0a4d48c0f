// SPDX-License-Identifier: Apache-2.0
// The lines of an operation in shared memory: for each rank a word that says whether it sleeps, and
// two lines with a sequence number and bytes. What fits beside the number travels in one cache
// line. line_protocol.h says who writes what, and when.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/numbers.h"

namespace ronde::collectives {

// Which rank has ended an operation for all: it has joined, has not waited longer, or has closed
// its engine.
struct LineEnd {
  std::int32_t rank = -1;  // -1: nobody has
  bool late = false;
  bool closed = false;

  [[nodiscard]] bool is_one() const { return rank >= 0; }
  [[nodiscard]] std::uint32_t word() const {
    return (static_cast<std::uint32_t>(rank) + 1) * 4 + (late ? 1 : 0) + (closed ? 2 : 0);
  }
  static LineEnd of(std::uint32_t word) {
    return {static_cast<std::int32_t>(word / 4) - 1, (word & 1) != 0, (word & 2) != 0};
  }
};

// Copies refer to the same memory, which must outlive them. Ranks are positions on the host. The
// words are plain ones, used through std::atomic_ref: where all ranks post in each call, memory of
// zeros is as good as format().
//
// Thread safety: the words are atomic; the bytes are guarded by the protocol.
class Lines {
 public:
  using Sequence = std::uint32_t;
  // Beyond it the ordinary path takes less time than p ranks that read p vectors.
  static constexpr std::size_t kMostBytes = 4096;

  Lines() = default;
  // `bytes`: the most that a rank gives in a call, up to kMostBytes.
  Lines(std::span<std::byte> memory, std::int32_t ranks, std::size_t bytes)
      : memory_(memory.data()), ranks_(ranks), line_(line_bytes(bytes)) {}
  static base::Bytes size_of(std::int32_t ranks, std::size_t bytes) {
    return base::Bytes(ranks * base::narrow<std::int64_t>(rank_bytes(line_bytes(bytes))));
  }
  // Once, before the other ranks know of the memory.
  void format() const {
    for (std::int32_t rank = 0; rank < ranks_; ++rank) {
      for (const auto& word : {sleeps(rank), joined(rank), left(rank), ended(rank)}) {
        word.store(0, std::memory_order_relaxed);
      }
      for (const int line : {0, 1}) {
        sequence(rank, line).store(static_cast<Sequence>(-line), std::memory_order_relaxed);
      }
    }
  }

  [[nodiscard]] std::int32_t ranks() const { return ranks_; }
  [[nodiscard]] std::atomic_ref<Sequence> sequence(std::int32_t rank, int line) const {
    return word(line_at(rank, line));
  }
  [[nodiscard]] std::atomic_ref<std::uint32_t> sleeps(std::int32_t rank) const {
    return word(at(rank));
  }
  // 1: this rank has joined, and posts nothing more.
  [[nodiscard]] std::atomic_ref<std::uint32_t> joined(std::int32_t rank) const {
    return word(at(rank) + sizeof(std::uint32_t));
  }
  // How this rank, or another one that it has heard of, has ended the operation: it posts nothing
  // more. 0: it has not; otherwise a LineEnd.
  [[nodiscard]] std::atomic_ref<std::uint32_t> ended(std::int32_t rank) const {
    return word(at(rank) + 3 * sizeof(std::uint32_t));
  }
  // 1: this rank does not use the lines any more. Once all have left, the memory is free.
  [[nodiscard]] std::atomic_ref<std::uint32_t> left(std::int32_t rank) const {
    return word(at(rank) + 2 * sizeof(std::uint32_t));
  }
  [[nodiscard]] bool all_have_left() const {
    for (std::int32_t rank = 0; rank < ranks_; ++rank) {
      if (left(rank).load(std::memory_order_acquire) == 0) return false;
    }
    return true;
  }
  [[nodiscard]] std::byte* bytes(std::int32_t rank, int line) const {
    return line_at(rank, line) + kNumber;
  }
  // Beside the number, and guarded as the bytes are: what a call is that may differ from the last.
  [[nodiscard]] std::uint64_t form(std::int32_t rank, int line) const {
    std::uint64_t form = 0;
    std::memcpy(&form, line_at(rank, line) + kForm, sizeof form);
    return form;
  }
  void set_form(std::int32_t rank, int line, std::uint64_t form) const {
    std::memcpy(line_at(rank, line) + kForm, &form, sizeof form);
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kForm = 8;
  static constexpr std::size_t kNumber = 16;  // so that the bytes are aligned

  static constexpr std::size_t line_bytes(std::size_t bytes) {
    return (kNumber + bytes + kLine - 1) / kLine * kLine;
  }
  // The hardware prefetches lines in pairs.
  static constexpr std::size_t rank_bytes(std::size_t line) {
    return (kLine + 2 * line + 2 * kLine - 1) / (2 * kLine) * (2 * kLine);
  }
  [[nodiscard]] std::byte* at(std::int32_t rank) const {
    return memory_ + static_cast<std::size_t>(rank) * rank_bytes(line_);
  }
  [[nodiscard]] std::byte* line_at(std::int32_t rank, int line) const {
    return at(rank) + kLine + static_cast<std::size_t>(line) * line_;
  }
  static std::atomic_ref<std::uint32_t> word(std::byte* at) {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(at));
  }

  std::byte* memory_ = nullptr;
  std::int32_t ranks_ = 0;
  std::size_t line_ = 0;
};

}  // namespace ronde::collectives
