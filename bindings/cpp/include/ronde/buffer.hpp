// SPDX-License-Identifier: Apache-2.0
// Memory on the board of the host, for tensors that are reduced in place. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <ronde/engine.hpp>
#include <ronde/types.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace ronde {
namespace detail {

struct BufferDeleter {
  void operator()(ronde_buffer* buffer) const { ronde_buffer_release(buffer); }
};

}  // namespace detail

// `size` elements of T in memory that the ranks of this host share. An allreduce in place whose
// tensor lies in a Buffer on every rank moves no bytes but the sum's; anything else works on it as
// on other memory, with the same results. Sub-spans of a Buffer are tensors as good as the whole,
// best if they begin on 64 bytes.
//
//   ronde::Buffer<float> gradient(engine, 1 << 20);
//   engine.allreduce("fc1/weight", gradient.span(), ronde::average).wait();
//
// Ownership: the Buffer owns the memory, which stays mapped as long as it lives, also beyond the
// engine's end. Drop it when no work on it is in flight. It is engine memory: after the job has
// failed, other ranks may write into it for a moment.
//
// Thread safety: a Buffer belongs to one thread at a time; its memory is used like any other.
template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "the other ranks of the host write into a Buffer: it holds plain numbers");
  static_assert(alignof(T) <= 64, "a Buffer is aligned to 64 bytes");

 public:
  // Empty.
  Buffer() = default;
  // `size` elements, all zero, aligned to 64 bytes. Throws Error: those of ronde_buffer_allocate
  // (RONDE_OUT_OF_MEMORY beyond RONDE_BUFFER_BYTES), and RONDE_INVALID_ARGUMENT if the bytes cannot
  // be counted.
  Buffer(const Engine& engine, std::size_t size) : size_(size) {
    if (size > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
      throw Error(RONDE_INVALID_ARGUMENT,
                  "a Buffer of " + std::to_string(size) + " elements: its bytes overflow", "", -1);
    }
    detail::ErrorSlot error;
    ronde_buffer* buffer = nullptr;
    error.throw_if(ronde_buffer_allocate(engine.get(), size * sizeof(T), &buffer, &error));
    buffer_.reset(buffer);
    data_ = static_cast<T*>(ronde_buffer_memory(buffer));
    std::fill_n(data_, size, T{});
  }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    buffer_ = std::move(other.buffer_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  // Access as to a std::span: no checks, nothing throws, sizes and indices in elements.
  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::span<T> span() noexcept { return {data_, size_}; }
  [[nodiscard]] std::span<const T> span() const noexcept { return {data_, size_}; }
  [[nodiscard]] T& operator[](std::size_t index) { return data_[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const { return data_[index]; }
  [[nodiscard]] T* begin() noexcept { return data_; }
  [[nodiscard]] T* end() noexcept { return data_ + size_; }
  [[nodiscard]] const T* begin() const noexcept { return data_; }
  [[nodiscard]] const T* end() const noexcept { return data_ + size_; }

 private:
  std::unique_ptr<ronde_buffer, detail::BufferDeleter> buffer_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ronde
