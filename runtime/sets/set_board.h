// SPDX-License-Identifier: Apache-2.0
// The board of a process set on one host: its size, and how one of the set's ranks there makes it,
// in memory of its own arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/config.h"
#include "base/numbers.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "runtime/tensors/board_buffer.h"

namespace ronde::runtime {

[[nodiscard]] collectives::BoardGeometry geometry_of_set(std::int32_t ranks,
                                                         const base::Config& config);
// A set begins with small slots. A tensor of more bytes than these makes it take large ones.
inline constexpr std::int64_t kMostOfSmallSlots = 64 << 10;  // bytes
[[nodiscard]] collectives::BoardGeometry geometry_of_large_slots(std::int32_t ranks);

// The memory of a set's board. Its owner frees it when every rank has closed the set.
//
// Thread safety: one thread at a time.
class SetMemory {
 public:
  // Makes a board for so many ranks in the arena of this rank.
  static base::Result<std::unique_ptr<SetMemory>> make(const collectives::Board& board,
                                                       std::shared_ptr<BoardMemory> memory,
                                                       const collectives::BoardGeometry& geometry);
  // Memory for something else of the set.
  static base::Result<std::unique_ptr<SetMemory>> plain(std::shared_ptr<BoardMemory> memory,
                                                        base::Bytes bytes);
  [[nodiscard]] std::span<std::byte> bytes() const { return buffer_->bytes(); }
  // Where a board lies, from the beginning of all arenas of the host.
  [[nodiscard]] std::int64_t offset() const { return offset_; }
  // Not freed: other ranks may use it still.
  void keep() { buffer_->keep(); }

 private:
  SetMemory(std::unique_ptr<BoardBuffer> buffer, std::int64_t offset)
      : buffer_(std::move(buffer)), offset_(offset) {}

  const std::unique_ptr<BoardBuffer> buffer_;
  const std::int64_t offset_;
};

// The memory at that offset, as large as a board of that geometry; an error for one that cannot be.
base::Result<std::span<std::byte>> memory_at(const collectives::Board& board, std::int64_t offset,
                                             const collectives::BoardGeometry& geometry);

}  // namespace ronde::runtime
