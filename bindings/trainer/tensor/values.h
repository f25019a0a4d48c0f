// SPDX-License-Identifier: Apache-2.0
// The numbers of a tensor, and the pool that their memory comes from.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "bindings/trainer/tensor/shape.h"

namespace ronde::trainer {

// An order of elements in memory that only the kernels know (oneDNN's blocked formats).
class Layout;
using LayoutPointer = std::shared_ptr<const Layout>;

// Keeps memory that was let go for the next who asks for about as much: from the second step on a
// step takes no large memory from the system. An eighth of it may be more than was asked for.
// Memory is aligned to 64 bytes, and its contents are unspecified. It may outlive its pool.
//
// Thread safety: belongs to one thread; memory may be let go by another.
class MemoryPool {
 public:
  MemoryPool();
  [[nodiscard]] std::shared_ptr<float> take(std::size_t floats);
  // A pass begins: what lies here, and the two passes before did not use, goes back to the system.
  void begin_pass();
  // How many floats lie here for whoever asks next.
  [[nodiscard]] std::size_t held() const;

 private:
  class Shelf;
  std::shared_ptr<Shelf> shelf_;
};

// Numbers with a shape: a handle, so that a copy shares the memory. Row-major unless `layout` says
// otherwise; a blocked layout may pad, so that the memory holds more than the shape's elements.
//
// Thread safety: that of a std::shared_ptr.
struct Values {
  Shape shape;
  std::shared_ptr<float> memory;
  LayoutPointer layout;         // null: row-major
  bool is_free_of_nan = false;  // it is known that none is NaN

  // Row-major numbers in fresh memory.
  [[nodiscard]] static Values make(MemoryPool& pool, Shape shape);
  // Row-major numbers that lie in memory of somebody else's, which must outlive this.
  [[nodiscard]] static Values over(Shape shape, std::span<float> memory);

  [[nodiscard]] bool empty() const noexcept { return memory == nullptr; }
  [[nodiscard]] std::size_t size() const { return elements_of(shape); }
  [[nodiscard]] float* data() const noexcept { return memory.get(); }
  // The numbers in row-major order; they must be so.
  [[nodiscard]] std::span<float> plain() const;
};

}  // namespace ronde::trainer
