// SPDX-License-Identifier: Apache-2.0
// An allocator of the standard library whose memory lies on the board. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <new>
#include <ronde/engine.hpp>
#include <ronde/types.hpp>
#include <type_traits>

namespace ronde {

// Gives containers memory that the ranks of this host share, where an allreduce in place copies
// nothing (ronde::Buffer). Where the board has no room it is ordinary memory, with one line at info
// for each engine, and everything else stays the same.
//
//   std::vector<float, ronde::allocator<float>> gradient(1 << 20, ronde::allocator<float>(engine));
//   engine.allreduce("fc1/weight", std::span(gradient), ronde::average).wait();
//
// Ownership: the engine outlives what allocates; containers may outlive it, if they grow no more. A
// container frees memory only when no work on it is in flight, so it does not grow meanwhile.
//
// Thread safety: that of any allocator: several threads may use copies of one.
template <typename T>
class allocator {  // NOLINT(readability-identifier-naming): named as the standard library's
  static_assert(alignof(T) <= 64, "memory on the board is aligned to 64 bytes");

 public:
  // NOLINTBEGIN(readability-identifier-naming): as the standard library's
  using value_type = T;
  // Each frees what any other has allocated.
  using is_always_equal = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  // NOLINTEND(readability-identifier-naming)

  // Memory comes from the board of this engine.
  explicit allocator(const Engine& engine) : engine_(engine.get()) {}
  // NOLINTBEGIN(google-explicit-constructor): as the standard library's
  template <typename Other>
  allocator(const allocator<Other>& other) noexcept : engine_(other.engine_) {}
  // NOLINTEND(google-explicit-constructor)

  // Room for `count` elements, aligned to 64 bytes. Throws std::bad_array_new_length where the
  // bytes cannot be counted, and Error (RONDE_OUT_OF_MEMORY).
  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > (std::numeric_limits<std::size_t>::max() - kHeader) / sizeof(T)) {
      throw std::bad_array_new_length();
    }
    detail::ErrorSlot error;
    ronde_buffer* buffer = nullptr;
    error.throw_if(
        ronde_buffer_allocate_anywhere(engine_, kHeader + count * sizeof(T), &buffer, &error));
    auto* const memory = static_cast<std::byte*>(ronde_buffer_memory(buffer));
    const Header header{buffer};
    std::memcpy(memory, &header, sizeof(header));
    return reinterpret_cast<T*>(memory + kHeader);
  }
  void deallocate(T* elements, std::size_t /*count*/) noexcept {
    Header header{};
    std::memcpy(&header, reinterpret_cast<std::byte*>(elements) - kHeader, sizeof(header));
    ronde_buffer_release(header.buffer);
  }

  friend bool operator==(const allocator& /*one*/, const allocator& /*other*/) { return true; }

 private:
  template <typename Other>
  friend class allocator;

  // Says which buffer it is, in front of the elements.
  struct Header {
    ronde_buffer* buffer = nullptr;
  };
  static constexpr std::size_t kHeader = 64;

  ronde_engine* engine_;
};

}  // namespace ronde
