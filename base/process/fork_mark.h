// SPDX-License-Identifier: Apache-2.0
// Tells a forked child from its parent without a system call: getpid() costs a tenth of a small
// collective.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace ronde::base {

// A mark of the process that made it; the copy that a child gets by fork() is no longer its own.
// Thread safety: every function may be called from any thread.
class ForkMark {
 public:
  ForkMark();
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // True in the process that made it, false in its forked children.
  [[nodiscard]] bool is_mine() const;

 private:
  // The mark has a page of its own that the kernel clears in a child; nullptr where the kernel
  // cannot do that.
  std::atomic<std::uint32_t>* mark_ = nullptr;
  const pid_t pid_;
};

}  // namespace ronde::base
