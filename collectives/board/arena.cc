// SPDX-License-Identifier: Apache-2.0
// The first-fit allocator of an arena, and how whole free pages go back to the system.
#include "collectives/board/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include "base/check.h"

namespace ronde::collectives {

namespace {

using base::MutexLock;

constexpr std::size_t kPageBytes = 4096;

constexpr std::size_t round_down(std::size_t value, std::size_t grain) {
  return value / grain * grain;
}
constexpr std::size_t round_up(std::size_t value, std::size_t grain) {
  return round_down(value + grain - 1, grain);
}

}  // namespace

bool lies_in(std::span<const std::byte> memory, const void* begin, std::size_t bytes) {
  if (bytes == 0) return true;
  // Addresses are compared as numbers, since pointers into different objects have no order.
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  return at >= first && at - first < memory.size() && bytes <= memory.size() - (at - first);
}

Arena::Arena(std::span<std::byte> mine) : mine_(mine), pid_(::getpid()) {
  if (!mine.empty()) free_.emplace(0, round_down(mine.size(), kAlignment));
}

base::Result<std::span<std::byte>> Arena::allocate(base::Bytes bytes) {
  const MutexLock lock(mutex_);
  // The size is compared before it is rounded up, which could overflow.
  if (bytes.size() <= mine_.size()) {
    const std::size_t wanted = std::max(round_up(bytes.size(), kAlignment), kAlignment);
    for (auto block = free_.begin(); block != free_.end(); ++block) {
      const auto [begin, end] = *block;
      if (end - begin < wanted) continue;
      taken_.emplace(begin, begin + wanted);
      free_.erase(block);
      if (begin + wanted < end) free_.emplace(begin + wanted, end);
      used_ += wanted;
      return mine_.subspan(begin, bytes.size());
    }
  }
  return base::Status::error(
      base::Code::kOutOfMemory,
      "no place for a buffer of " + std::to_string(bytes.value()) +
          " bytes: " + std::to_string(used_) + " of the " + std::to_string(mine_.size()) +
          " bytes of this rank's arena are in use: release buffers, or raise RONDE_BUFFER_BYTES" +
          " (a job inside one process never has more than 64 MiB)");
}

void Arena::release(std::byte* memory) {
  if (::getpid() != pid_) return;
  const MutexLock lock(mutex_);
  const auto offset = static_cast<std::size_t>(memory - mine_.data());
  const auto block = taken_.find(offset);
  base::check(block != taken_.end(), "memory is released once, to the arena that allocated it");
  const auto [begin, end] = *block;
  taken_.erase(block);
  used_ -= end - begin;
  std::size_t free_begin = begin;
  std::size_t free_end = end;
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    free_end = next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && std::prev(next)->second == begin) {
    free_begin = std::prev(next)->first;
    free_.erase(std::prev(next));
  }
  free_.emplace(free_begin, free_end);
  give_back_pages(begin, end, free_begin, free_end);
}

// Gives back the pages of the released bytes [begin, end) that are now free as a whole. The lock is
// held meanwhile, so that allocate() does not return the memory before its pages are gone.
void Arena::give_back_pages(std::size_t begin, std::size_t end, std::size_t free_begin,
                            std::size_t free_end) {
  const std::size_t first =
      round_up(std::max(free_begin, round_down(begin, kPageBytes)), kPageBytes);
  const std::size_t last = round_down(std::min(free_end, round_up(end, kPageBytes)), kPageBytes);
  if (first >= last) return;
  std::byte* const pages = mine_.data() + first;
  // MADV_REMOVE frees pages of shared memory, MADV_DONTNEED those of the heap. Where neither works
  // the pages stay, and only memory is lost.
  if (::madvise(pages, last - first, MADV_REMOVE) == 0) return;
  static_cast<void>(::madvise(pages, last - first, MADV_DONTNEED));
}

}  // namespace ronde::collectives
