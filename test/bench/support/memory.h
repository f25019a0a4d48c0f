// SPDX-License-Identifier: Apache-2.0
// The memory of a benchmark: what a program would have from malloc, and what its processes share.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

namespace ronde::bench {

// Touched by its owner, aligned to a cache line and off the beginning of a page, as memory is that
// malloc gives. Thread safety: belongs to one thread.
class UserMemory {
 public:
  explicit UserMemory(std::size_t bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(kLine, round_up(bytes) + 2 * kLine))) {
    if (memory_ == nullptr) throw std::bad_alloc();
    std::memset(data(), 0, bytes);
  }
  [[nodiscard]] std::byte* data() const { return memory_.get() + kLine; }

 private:
  static constexpr std::size_t kLine = 64;
  static std::size_t round_up(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
};

}  // namespace ronde::bench
