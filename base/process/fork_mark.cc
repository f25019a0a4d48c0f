// SPDX-License-Identifier: Apache-2.0
// The page that the kernel clears in a child (MADV_WIPEONFORK), and the fallback to getpid().
#include "base/process/fork_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>

namespace ronde::base {

namespace {

// The kernel rounds this up to a page.
constexpr std::size_t kBytes = sizeof(std::atomic<std::uint32_t>);

}  // namespace

ForkMark::ForkMark() : pid_(::getpid()) {
  void* page = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (::madvise(page, kBytes, MADV_WIPEONFORK) != 0) {
    ::munmap(page, kBytes);
    return;
  }
  mark_ = new (page) std::atomic<std::uint32_t>(1);
}

ForkMark::~ForkMark() {
  if (mark_ != nullptr) ::munmap(mark_, kBytes);
}

bool ForkMark::is_mine() const {
  return mark_ != nullptr ? mark_->load(std::memory_order_relaxed) == 1 : ::getpid() == pid_;
}

}  // namespace ronde::base
