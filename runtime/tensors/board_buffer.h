// SPDX-License-Identifier: Apache-2.0
// Memory that a program holds, on the board or, where that has no room, of its own: what stands
// behind ronde::Buffer and ronde::allocator. It may outlive its engine, so it shares the ownership
// of the board's memory.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "base/numbers.h"
#include "base/status.h"
#include "collectives/board/arena.h"
#include "collectives/board/board.h"

namespace ronde::runtime {

// The arena of a rank, and the board that keeps it mapped.
// Thread safety: every function may be called from any thread.
class BoardMemory {
 public:
  explicit BoardMemory(collectives::Board board)
      : board_(std::move(board)), arena_(board_.arena(board_.rank())) {}

  [[nodiscard]] collectives::Arena& arena() { return arena_; }

 private:
  const collectives::Board board_;
  collectives::Arena arena_;
};

// Thread safety: one thread at a time.
class BoardBuffer {
 public:
  static base::Result<std::unique_ptr<BoardBuffer>> allocate(std::shared_ptr<BoardMemory> memory,
                                                             base::Bytes bytes) {
    RONDE_ASSIGN_OR_RETURN(const auto place, memory->arena().allocate(bytes));
    return std::unique_ptr<BoardBuffer>(new BoardBuffer(std::move(memory), place));
  }
  // Memory of this process alone, as aligned as the board's.
  static base::Result<std::unique_ptr<BoardBuffer>> allocate_plain(base::Bytes bytes) {
    void* const memory = ::operator new(bytes.size(), kPlainAlignment, std::nothrow);
    if (memory == nullptr) {
      return base::Status::error(base::Code::kOutOfMemory,
                                 "no memory for " + std::to_string(bytes.value()) + " bytes");
    }
    const std::span place(static_cast<std::byte*>(memory), bytes.size());
    return std::unique_ptr<BoardBuffer>(new BoardBuffer(nullptr, place));
  }
  BoardBuffer(const BoardBuffer&) = delete;
  BoardBuffer& operator=(const BoardBuffer&) = delete;
  ~BoardBuffer() {
    if (!on_board()) {
      ::operator delete(bytes_.data(), kPlainAlignment);
    } else if (!kept_) {
      memory_->arena().release(bytes_.data());
    }
  }
  // It stays taken, as long as the board is there: others may use it after this object.
  void keep() { kept_ = true; }

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  [[nodiscard]] bool on_board() const { return memory_ != nullptr; }

 private:
  static constexpr std::align_val_t kPlainAlignment{collectives::Arena::kAlignment};

  BoardBuffer(std::shared_ptr<BoardMemory> memory, std::span<std::byte> bytes)
      : memory_(std::move(memory)), bytes_(bytes) {}

  const std::shared_ptr<BoardMemory> memory_;  // nullptr: plain
  const std::span<std::byte> bytes_;
  bool kept_ = false;
};

}  // namespace ronde::runtime
