// SPDX-License-Identifier: Apache-2.0
// Host memory of the toy device, and the copies that use it: a device cannot be told that memory
// which it copies to is gone.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>

namespace ronde::toy {

// Thread safety: all functions, from any thread.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    for (const auto& [memory, block] : blocks_) std::free(memory);
  }

  // nullptr: there is none left.
  void* allocate(std::size_t bytes) {
    void* const memory = std::malloc(bytes);
    if (memory == nullptr) return nullptr;
    const std::lock_guard lock(mutex_);
    blocks_[static_cast<std::byte*>(memory)] = {bytes, 0};
    return memory;
  }
  // False, and nothing is freed: a copy is under way there.
  bool free(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<std::byte*>(memory));
    if (found == blocks_.end() || found->second.copies > 0) return false;
    std::free(memory);
    blocks_.erase(found);
    return true;
  }

  // A copy from or to here begins, or is over.
  void begin(const void* memory) { count(memory, 1); }
  void end(const void* memory) { count(memory, -1); }

 private:
  struct Block {
    std::size_t bytes;
    int copies;
  };

  void count(const void* memory, int copies) {
    const std::lock_guard lock(mutex_);
    auto next = blocks_.upper_bound(static_cast<std::byte*>(const_cast<void*>(memory)));
    if (next == blocks_.begin()) return;  // a copy of nothing
    auto& [begin, block] = *--next;
    if (std::less<>()(memory, begin + block.bytes)) block.copies += copies;
  }

  std::mutex mutex_;
  std::map<std::byte*, Block, std::less<>> blocks_;
};

}  // namespace ronde::toy
