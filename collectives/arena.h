// SPDX-License-Identifier: Apache-2.0
// Gives out the memory of a rank's arena on the board: tensors that live there are reduced in place
// (host_in_place.h). What it knows of the memory lies outside of it, since the other ranks write
// into tensors and a page that nobody uses must stay untouched.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <span>

#include "base/mutex.h"
#include "base/numbers.h"
#include "base/status.h"

namespace ronde::collectives {

// Thread safety: every function may be called from any thread.
class Arena {
 public:
  static constexpr std::size_t kAlignment = 64;

  // The memory, which begins on a page, must outlive this object.
  explicit Arena(std::span<std::byte> mine);

  // Aligned to kAlignment; what is in it is not specified. The lowest place where it fits. 0 bytes
  // have a place of their own, too.
  base::Result<std::span<std::byte>> allocate(base::Bytes bytes);

  // Memory that allocate() gave out, once. Whole pages go back to the system. In a forked child
  // this does nothing: the pages are the parent's as well.
  void release(std::byte* memory);

 private:
  void give_back_pages(std::size_t begin, std::size_t end, std::size_t free_begin,
                       std::size_t free_end) RONDE_REQUIRES(mutex_);

  const std::span<std::byte> mine_;
  const pid_t pid_;
  mutable base::Mutex mutex_;
  // From where to where, in bytes from the beginning. No two free blocks touch each other.
  std::map<std::size_t, std::size_t> free_ RONDE_GUARDED_BY(mutex_);
  std::map<std::size_t, std::size_t> taken_ RONDE_GUARDED_BY(mutex_);
  std::size_t used_ RONDE_GUARDED_BY(mutex_) = 0;
};

// Whether the bytes lie in this memory; an empty range lies anywhere.
[[nodiscard]] bool lies_in(std::span<const std::byte> memory, const void* begin, std::size_t bytes);

}  // namespace ronde::collectives
