// SPDX-License-Identifier: Apache-2.0
// Knows a forked child without a system call: getpid() costs a tenth of a small collective.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace ronde::base {

// Made by a process; a copy that came with fork() is told apart.
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
  // On a page of its own that the kernel clears in a child; nullptr where it cannot do that.
  std::atomic<std::uint32_t>* mark_ = nullptr;
  const pid_t pid_;
};

}  // namespace ronde::base
