// SPDX-License-Identifier: Apache-2.0
// Blocks are chosen, kept and freed here.
#include "collectives/cuda/pools.h"

#include <algorithm>
#include <bit>

namespace ronde::collectives::cuda {

using base::MutexLock;
using base::Result;

namespace {
constexpr std::size_t kSmallestBlock = std::size_t{1} << 20;
constexpr std::size_t kSmallestHostBlock = std::size_t{4} << 10;
// Blocks are powers of two up to this size, so that batches of similar sizes share them, and from
// there on eighths of one: twice that much is memory that the program misses.
constexpr std::size_t kWholePowers = std::size_t{1} << 30;
// A block that is this many times too large is left for larger batches.
constexpr std::size_t kWaste = 8;

std::size_t block_size(std::size_t bytes, std::size_t smallest) {
  const std::size_t power = std::bit_ceil(std::max(bytes, smallest));
  if (power <= kWholePowers) return power;
  const std::size_t step = power / 16;
  return (bytes + step - 1) / step * step;
}
}  // namespace

Result<Event> Pools::take_event() {
  {
    const MutexLock lock(mutex_);
    if (!events_.empty()) {
      const Event event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  return cuda_->make_event();
}

void Pools::give_event(Event event) {
  const MutexLock lock(mutex_);
  events_.push_back(event);
}

Result<Pools::Block> Pools::take_block(std::size_t bytes) {
  const std::size_t whole = block_size(bytes, kSmallestBlock);
  {
    const MutexLock lock(mutex_);
    const auto found = blocks_.lower_bound(whole);
    if (found != blocks_.end() && found->first / kWaste <= whole) {
      const Block block{found->second, found->first};
      blocks_.erase(found);
      return block;
    }
  }
  RONDE_ASSIGN_OR_RETURN(auto memory, cuda_->allocate(whole));
  return Block{static_cast<std::byte*>(memory), whole};
}

void Pools::give_block(const Block& block) {
  const MutexLock lock(mutex_);
  blocks_.emplace(block.bytes, block.memory);
}

Result<void*> Pools::take_host(std::size_t bytes) {
  const std::size_t whole = block_size(bytes, kSmallestHostBlock);
  {
    const MutexLock lock(mutex_);
    const auto found = host_blocks_.lower_bound(whole);
    if (found != host_blocks_.end() && found->first / kWaste <= whole) {
      const auto [size, memory] = *found;
      host_blocks_.erase(found);
      lent_host_blocks_.emplace(memory, size);
      return memory;
    }
  }
  RONDE_ASSIGN_OR_RETURN(auto memory, cuda_->allocate_host(whole));
  const MutexLock lock(mutex_);
  lent_host_blocks_.emplace(memory, whole);
  return memory;
}

void Pools::give_host(void* memory) {
  const MutexLock lock(mutex_);
  const auto found = lent_host_blocks_.find(memory);
  if (found == lent_host_blocks_.end()) return;
  host_blocks_.emplace(found->second, memory);
  lent_host_blocks_.erase(found);
}

void Pools::clear() {
  const MutexLock lock(mutex_);
  for (const Event event : events_) cuda_->destroy_event(event);
  for (const auto& [bytes, memory] : blocks_) cuda_->free(memory);
  for (const auto& [bytes, memory] : host_blocks_) cuda_->free_host(memory);
  for (const auto& [memory, bytes] : lent_host_blocks_) cuda_->free_host(memory);
  events_.clear();
  blocks_.clear();
  host_blocks_.clear();
  lent_host_blocks_.clear();
}

Result<EventLease> EventLease::take(std::shared_ptr<Pools> pools) {
  EventLease lease;
  RONDE_ASSIGN_OR_RETURN(lease.event_, pools->take_event());
  lease.pools_ = std::move(pools);
  return lease;
}

Result<BlockLease> BlockLease::take(std::shared_ptr<Pools> pools, std::size_t bytes) {
  BlockLease lease;
  if (bytes == 0) return lease;
  RONDE_ASSIGN_OR_RETURN(lease.block_, pools->take_block(bytes));
  lease.pools_ = std::move(pools);
  return lease;
}

}  // namespace ronde::collectives::cuda
