// SPDX-License-Identifier: Apache-2.0
// Memory of the toy device: what a program sees of it cannot be read or written, as that of a real
// one; the device has a view of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace ronde::toy {

// Thread safety: all functions, from any thread.
class Memory {
 public:
  // The one of the process: pointers of all engines lie here.
  static Memory& instance();

  // nullptr: there is none left.
  void* allocate(std::size_t bytes, bool managed);
  void free(void* memory);

  struct Place {
    std::byte* view;  // what the device reads and writes
    bool managed;
  };
  // Where a pointer into allocated memory lies; nothing for other pointers.
  [[nodiscard]] std::optional<Place> find(const void* pointer);
  // The device's view of a pointer; host memory is as it is.
  [[nodiscard]] std::byte* view(const void* pointer);

 private:
  struct Range {
    std::size_t bytes;
    std::byte* view;
    bool managed;
  };

  std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;
};

}  // namespace ronde::toy
