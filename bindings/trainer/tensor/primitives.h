// SPDX-License-Identifier: Apache-2.0
// oneDNN's primitives, each made once for its shapes and layouts. This, with its source and
// kernels.cc, is all that knows oneDNN: another version or another library changes these alone.
#pragma once

#include <dnnl.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/values.h"

// OpenMP's run-time library has these, which say how many threads oneDNN takes. They are declared
// here because only some compilers bring the header, and clang-tidy does not.
extern "C" void omp_set_num_threads(int threads);
extern "C" int omp_get_max_threads();

namespace ronde::trainer {

// An order of elements. Two tensors of equal shape with equal descriptors lie alike.
class Layout {
 public:
  explicit Layout(const dnnl::memory::desc& own, dnnl::pooling_forward::primitive_desc by = {})
      : desc(own), pool(std::move(by)) {}

  dnnl::memory::desc desc;
  // The workspace of a pool knows the pool that wrote it, which its backward pass asks for.
  dnnl::pooling_forward::primitive_desc pool;
};

[[nodiscard]] dnnl::memory::dim dim(std::size_t side);
[[nodiscard]] dnnl::memory::dims dims_of(const Shape& shape);
[[nodiscard]] dnnl::memory::dims dims_of(const std::array<std::size_t, 2>& pair);
[[nodiscard]] dnnl::memory::desc row_major(const dnnl::memory::dims& dims);
[[nodiscard]] dnnl::memory::desc desc_of(const Values& values);
// How many floats the memory holds, with what the layout pads.
[[nodiscard]] std::size_t floats_of(const Values& values);

// While oneDNN works, this thread has its number of threads, and no signal comes: generated code
// uses the stack pointer for data, into which a signal's frame would fall. Threads that oneDNN
// starts meanwhile never get any.
class Working {
 public:
  explicit Working(int threads) : threads_before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &signals_before_);
  }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;
  ~Working() {
    pthread_sigmask(SIG_SETMASK, &signals_before_, nullptr);
    omp_set_num_threads(threads_before_);
  }

 private:
  int threads_before_;
  sigset_t signals_before_{};
};

// What a primitive is made for. Kept in place, so that to look one up takes no memory.
class PrimitiveKey {
 public:
  // `name` is a literal, for messages; its address tells one operation from another.
  explicit PrimitiveKey(const char* name) : name_(name) {
    *this << reinterpret_cast<std::uint64_t>(name);
  }
  PrimitiveKey& operator<<(std::uint64_t number) {
    numbers_.at(count_++) = number;
    return *this;
  }
  PrimitiveKey& operator<<(const Shape& shape) {
    *this << std::uint64_t{shape.size()};
    for (const std::size_t side : shape) *this << std::uint64_t{side};
    return *this;
  }
  PrimitiveKey& operator<<(const Window& window) {
    for (const auto& [height, width] : {window.side, window.stride, window.padding}) {
      *this << std::uint64_t{height} << std::uint64_t{width};
    }
    return *this;
  }
  PrimitiveKey& operator<<(const Values& values) { return *this << values.shape << values.layout; }
  PrimitiveKey& operator<<(const LayoutPointer& layout) {
    return *this << reinterpret_cast<std::uint64_t>(layout.get());
  }

  [[nodiscard]] const char* name() const { return name_; }
  bool operator==(const PrimitiveKey& other) const {
    return count_ == other.count_ &&
           std::equal(numbers_.data(), numbers_.data() + count_, other.numbers_.data());
  }
  struct Hash {
    std::size_t operator()(const PrimitiveKey& key) const {
      std::uint64_t hash = 0;
      for (std::size_t i = 0; i < key.count_; ++i) {
        hash = (hash ^ key.numbers_[i]) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 29;
      }
      return hash;
    }
  };

 private:
  const char* name_;
  std::array<std::uint64_t, 24> numbers_{};
  std::size_t count_ = 0;
};

// A primitive with places for its arguments, which a call fills.
struct Primitive {
  struct Argument {
    LayoutPointer layout;  // null: row-major
    dnnl::memory place;    // over `data`
    float* data = nullptr;
  };

  const char* name;
  dnnl::primitive primitive;
  std::vector<Argument> arguments;
  std::vector<dnnl_exec_arg_t> passed;
  LayoutPointer workspace;           // of a pool
  std::vector<LayoutPointer> about;  // those of its key, whose addresses must not become others'
  std::uint64_t pass = 0;            // in which it was asked for last
};

// Thread safety: belongs to one thread.
class Primitives {
 public:
  Primitives(MemoryPool& pool, int threads);

  [[nodiscard]] MemoryPool& pool() const { return pool_; }
  [[nodiscard]] const dnnl::engine& engine() const { return engine_; }
  [[nodiscard]] int threads() const { return threads_; }
  // Drops primitives that were not asked for in the last two passes, but for the newest.
  void begin_pass();
  [[nodiscard]] std::size_t held() const { return prepared_.size(); }

  // The primitive for this key, which `make` makes the first time; `about` is what it computes on.
  template <typename Make>
  Primitive& prepared(const PrimitiveKey& key, std::initializer_list<const Values*> about,
                      const Make& make) {
    const auto known = prepared_.find(key);
    if (known == prepared_.end()) return keep(key, about, make);
    known->second.pass = pass_;
    return known->second;
  }
  // A primitive with these arguments (DNNL_ARG_...), without those that it does not have (a bias).
  [[nodiscard]] Primitive with(const dnnl::primitive_desc_base& made,
                               std::initializer_list<int> arguments);

  // Memory for an argument that the primitive writes.
  [[nodiscard]] Values output(const Primitive& primitive, std::size_t argument, const Shape& shape);
  [[nodiscard]] Values in_layout(const Shape& shape, const LayoutPointer& layout);
  // Computes with the arguments in the order of with(), without those that are empty; an argument
  // in another layout than the primitive's is copied, so those it writes must be in the right one.
  void run(Primitive& primitive, std::initializer_list<const Values*> values);
  // Copies numbers between layouts.
  void copy(const Values& from, const Values& to);
  [[nodiscard]] Values reordered(const Values& values, const LayoutPointer& layout);

 private:
  Primitive& keep(const PrimitiveKey& key, std::initializer_list<const Values*> about,
                  const std::function<Primitive()>& make);
  LayoutPointer layout_of(const dnnl::memory::desc& desc);

  MemoryPool& pool_;
  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unordered_map<PrimitiveKey, Primitive, PrimitiveKey::Hash> prepared_;
  std::vector<LayoutPointer> layouts_;
  std::uint64_t pass_ = 0;
};

}  // namespace ronde::trainer
