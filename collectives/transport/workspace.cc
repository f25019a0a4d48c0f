// SPDX-License-Identifier: Apache-2.0
// The allocation and the choice of blocks: the smallest idle one that is large enough.
#include "collectives/transport/workspace.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>
#include <string>
#include <utility>

namespace ronde::collectives {
namespace {

// Block sizes are powers of two from here on, so that collectives of similar sizes can use the same
// blocks.
constexpr std::size_t kSmallestBlock = 4096;

}  // namespace

void Workspace::Block::Free::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{kAlignment});
}

base::Result<Workspace::Block> Workspace::acquire(const Transport& transport, base::Bytes bytes) {
  if (transport.outstanding() == 0) {
    std::move(parked_.begin(), parked_.end(), std::back_inserter(free_));
    parked_.clear();
  }
  auto best = free_.end();
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    if (block->size_ >= bytes.size() && (best == free_.end() || block->size_ < best->size_)) {
      best = block;
    }
  }
  if (best != free_.end()) {
    Block block = std::move(*best);
    free_.erase(best);
    return block;
  }
  const std::size_t size = std::bit_ceil(std::max(bytes.size(), kSmallestBlock));
  void* memory = ::operator new[](size, std::align_val_t{kAlignment}, std::nothrow);
  if (memory == nullptr) {
    return base::Status::error(
        base::Code::kOutOfMemory,
        "no memory for " + std::to_string(size) + " bytes of segments; use smaller segments");
  }
  ++blocks_;
  free_.reserve(blocks_);
  parked_.reserve(blocks_);
  return Block(static_cast<std::byte*>(memory), size);
}

void Workspace::release(Block block) {
  if (!block.empty()) free_.push_back(std::move(block));
}

void Workspace::park(Block block) {
  if (!block.empty()) parked_.push_back(std::move(block));
}

base::Bytes Workspace::idle_bytes() const {
  base::Bytes sum;
  for (const Block& block : free_) sum += base::Bytes::of_size(block.size_);
  for (const Block& block : parked_) sum += base::Bytes::of_size(block.size_);
  return sum;
}

}  // namespace ronde::collectives
