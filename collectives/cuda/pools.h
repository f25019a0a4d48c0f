// SPDX-License-Identifier: Apache-2.0
// What batches and copies borrow: device memory to pack into, host memory to stage in, events.
// CUDA gets nothing back before the engine closes, since freeing memory waits for all that runs on
// the device, other ranks included; and after a failure a copy that nothing stops may still write
// into memory that was returned here.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "collectives/cuda/cuda_api.h"

namespace ronde::collectives::cuda {

// Thread safety: any thread in which the device is current may call all functions.
class Pools {
 public:
  explicit Pools(std::shared_ptr<CudaApi> cuda) : cuda_(std::move(cuda)) {}

  base::Result<Event> take_event();
  void give_event(Event event);

  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  // Lends at least this many bytes; no other borrower gets them before they are returned.
  base::Result<Block> take_block(std::size_t bytes);
  void give_block(const Block& block);

  // The same for host memory.
  base::Result<void*> take_host(std::size_t bytes);
  void give_host(void* memory);

  // Frees what is not borrowed, and all host memory.
  void clear();

 private:
  const std::shared_ptr<CudaApi> cuda_;
  base::Mutex mutex_;
  std::vector<Event> events_ RONDE_GUARDED_BY(mutex_);
  std::multimap<std::size_t, std::byte*> blocks_ RONDE_GUARDED_BY(mutex_);
  std::multimap<std::size_t, void*> host_blocks_ RONDE_GUARDED_BY(mutex_);
  std::map<void*, std::size_t> lent_host_blocks_ RONDE_GUARDED_BY(mutex_);
};

// An event that is borrowed as long as this lives. Thread safety: a value that moves.
class EventLease {
 public:
  EventLease() = default;
  static base::Result<EventLease> take(std::shared_ptr<Pools> pools);
  EventLease(EventLease&& other) noexcept { swap(other); }
  EventLease& operator=(EventLease&& other) noexcept {
    EventLease(std::move(other)).swap(*this);
    return *this;
  }
  ~EventLease() {
    if (pools_ != nullptr) pools_->give_event(event_);
  }
  [[nodiscard]] Event get() const { return event_; }

 private:
  void swap(EventLease& other) noexcept {
    std::swap(pools_, other.pools_);
    std::swap(event_, other.event_);
  }
  std::shared_ptr<Pools> pools_;
  Event event_ = nullptr;
};

// A block that is borrowed as long as this lives. Thread safety: a value that moves.
class BlockLease {
 public:
  BlockLease() = default;
  // Borrows nothing for 0 bytes.
  static base::Result<BlockLease> take(std::shared_ptr<Pools> pools, std::size_t bytes);
  BlockLease(BlockLease&& other) noexcept { swap(other); }
  BlockLease& operator=(BlockLease&& other) noexcept {
    BlockLease(std::move(other)).swap(*this);
    return *this;
  }
  ~BlockLease() {
    if (pools_ != nullptr) pools_->give_block(block_);
  }
  [[nodiscard]] std::byte* get() const { return block_.memory; }

 private:
  void swap(BlockLease& other) noexcept {
    std::swap(pools_, other.pools_);
    std::swap(block_, other.block_);
  }
  std::shared_ptr<Pools> pools_;
  Pools::Block block_;
};

}  // namespace ronde::collectives::cuda
