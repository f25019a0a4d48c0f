// SPDX-License-Identifier: Apache-2.0
// Memory by size, and the handles on it.
#include "bindings/trainer/tensor/values.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr std::align_val_t kAlignment{64};
// From here on memory is mapped, so that what is freed goes back to the system at once.
constexpr std::size_t kMapped = std::size_t{128} << 10;

float* allocate(std::size_t floats) {
  const std::size_t bytes = floats * sizeof(float);
  if (bytes < kMapped) return static_cast<float*>(::operator new(bytes, kAlignment));
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<float*>(memory);
}

void release(std::size_t floats, float* memory) noexcept {
  const std::size_t bytes = floats * sizeof(float);
  if (bytes < kMapped) return ::operator delete(memory, kAlignment);
  ::munmap(memory, bytes);
}

// What is held of this many floats: sizes that a few batches more or less ask for fall together.
std::size_t class_of(std::size_t floats) {
  constexpr std::size_t kLine = 16;
  if (floats > std::numeric_limits<std::size_t>::max() / sizeof(float) / 2) throw std::bad_alloc();
  const std::size_t step = std::max(kLine, std::bit_floor(floats) / 8);
  return std::max<std::size_t>(1, (floats + step - 1) / step) * step;
}

}  // namespace

// Holds what was let go, by class. A model asks for the same few sizes in every step.
class MemoryPool::Shelf {
 public:
  Shelf() = default;
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;
  ~Shelf() { free_before(std::numeric_limits<std::uint64_t>::max()); }

  float* take(std::size_t floats) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<Free>& free = free_[floats];
      if (!free.empty()) {
        float* const memory = free.back().memory;
        free.pop_back();
        return memory;
      }
    }
    return allocate(floats);
  }

  void give(std::size_t floats, float* memory) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      free_[floats].push_back({memory, pass_});
    } catch (...) {
      release(floats, memory);
    }
  }

  std::size_t held() {
    const std::lock_guard lock(mutex_);
    std::size_t total = 0;
    for (const auto& [floats, free] : free_) total += floats * free.size();
    return total;
  }

  void begin_pass() {
    const std::lock_guard lock(mutex_);
    ++pass_;
    free_before(pass_ < 2 ? 0 : pass_ - 2);
  }

 private:
  struct Free {
    float* memory;
    std::uint64_t pass;  // in which it was let go
  };

  void free_before(std::uint64_t pass) {
    for (auto& [floats, free] : free_) {
      std::erase_if(free, [&](const Free& one) {
        if (one.pass < pass) release(floats, one.memory);
        return one.pass < pass;
      });
    }
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<Free>> free_;
  std::uint64_t pass_ = 0;
};

MemoryPool::MemoryPool() : shelf_(std::make_shared<Shelf>()) {}

std::shared_ptr<float> MemoryPool::take(std::size_t floats) {
  const std::size_t held = class_of(floats);
  return {shelf_->take(held), [shelf = shelf_, held](float* gone) { shelf->give(held, gone); }};
}

void MemoryPool::begin_pass() { shelf_->begin_pass(); }
std::size_t MemoryPool::held() const { return shelf_->held(); }

Values Values::make(MemoryPool& pool, Shape shape) {
  Values values;
  values.memory = pool.take(elements_of(shape));
  values.shape = std::move(shape);
  return values;
}

Values Values::over(Shape shape, std::span<float> memory) {
  if (elements_of(shape) != memory.size()) {
    throw TrainerError("memory of " + std::to_string(memory.size()) +
                       " elements holds no tensor of " + text_of(shape) +
                       ": give as many as its sides say");
  }
  Values values;
  // Shares ownership of nothing: the memory is the caller's.
  values.memory = std::shared_ptr<float>(std::shared_ptr<float>(), memory.data());
  values.shape = std::move(shape);
  return values;
}

std::span<float> Values::plain() const {
  if (layout != nullptr) {
    throw TrainerError("a tensor of " + text_of(shape) +
                       " is not in row-major order: this is a defect of an operation");
  }
  return {memory.get(), size()};
}

}  // namespace ronde::trainer
