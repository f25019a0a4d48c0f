// SPDX-License-Identifier: Apache-2.0
// The engine's own memory for segments in flight. Requests of a transport point only here, never at
// the user's tensors: so the user's memory is free the moment a work has finished or failed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "base/status.h"
#include "collectives/transport/transport.h"

namespace ronde::collectives {

// It owns 64-byte aligned blocks and lends them again and again. A block that requests may still
// point at is parked: alive, but not lent while the transport has anything outstanding. So a
// workspace must outlive the transport whose requests point into it.
//
// Thread safety: one thread at a time (whoever has the agent's role).
class Workspace {
 public:
  static constexpr std::size_t kAlignment = 64;

  // The owner of one piece of aligned memory.
  class Block {
   public:
    Block() = default;

    [[nodiscard]] bool empty() const { return memory_ == nullptr; }
    [[nodiscard]] std::span<std::byte> bytes() const { return {memory_.get(), size_}; }

   private:
    friend class Workspace;
    struct Free {
      void operator()(std::byte* memory) const;
    };
    Block(std::byte* memory, std::size_t size) : memory_(memory), size_(size) {}

    std::unique_ptr<std::byte[], Free> memory_;
    std::size_t size_ = 0;
  };

  // Lends a block of at least `bytes`, with unspecified contents.
  base::Result<Block> acquire(const Transport& transport, base::Bytes bytes);

  // Takes back a block that no request points at.
  void release(Block block);

  // Takes back a block that requests may still point at.
  void park(Block block);

  // The bytes of the blocks that are not on loan.
  [[nodiscard]] base::Bytes idle_bytes() const;

 private:
  std::size_t blocks_ = 0;  // ever made; both lists have room for all, so release() cannot fail
  std::vector<Block> free_;
  std::vector<Block> parked_;
};

// A block on loan to one collective. The destructor parks the block, or releases it if the
// collective has called mark_unreferenced().
//
// Thread safety: that of the workspace.
class WorkspaceLease {
 public:
  explicit WorkspaceLease(Workspace& workspace) : workspace_(workspace) {}
  ~WorkspaceLease() {
    if (unreferenced_) {
      workspace_.release(std::move(block_));
    } else {
      workspace_.park(std::move(block_));
    }
  }
  WorkspaceLease(const WorkspaceLease&) = delete;
  WorkspaceLease& operator=(const WorkspaceLease&) = delete;

  [[nodiscard]] base::Status acquire(const Transport& transport, base::Bytes bytes) {
    RONDE_ASSIGN_OR_RETURN(block_, workspace_.acquire(transport, bytes));
    return {};
  }
  [[nodiscard]] std::byte* memory() const { return block_.bytes().data(); }
  // Call this when test() has reported every request that pointed at the block.
  void mark_unreferenced() { unreferenced_ = true; }

 private:
  Workspace& workspace_;
  Workspace::Block block_;
  bool unreferenced_ = false;
};

}  // namespace ronde::collectives
