// SPDX-License-Identifier: Apache-2.0
// The allocator of a rank's arena on the board: tensors that live there are reduced in place
// (in_host/in_place.h). Its lists lie outside the arena, since the other ranks write into tensors
// and a page that holds no tensor must stay untouched.
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

  // Returns memory aligned to kAlignment, with unspecified contents, at the lowest place where it
  // fits. The caller hands it to release(). 0 bytes have a place of their own, too.
  base::Result<std::span<std::byte>> allocate(base::Bytes bytes);

  // Takes back what allocate() returned, once. Whole pages go back to the system. In a forked child
  // this does nothing, since the pages are the parent's as well.
  void release(std::byte* memory);

 private:
  void give_back_pages(std::size_t begin, std::size_t end, std::size_t free_begin,
                       std::size_t free_end) RONDE_REQUIRES(mutex_);

  const std::span<std::byte> mine_;
  const pid_t pid_;
  mutable base::Mutex mutex_;
  // A block begins at the key and ends at the value, in bytes from the beginning of the arena. No
  // two free blocks touch each other.
  std::map<std::size_t, std::size_t> free_ RONDE_GUARDED_BY(mutex_);
  std::map<std::size_t, std::size_t> taken_ RONDE_GUARDED_BY(mutex_);
  std::size_t used_ RONDE_GUARDED_BY(mutex_) = 0;
};

// Tells whether the bytes lie in this memory; an empty range lies anywhere.
[[nodiscard]] bool lies_in(std::span<const std::byte> memory, const void* begin, std::size_t bytes);

}  // namespace ronde::collectives
