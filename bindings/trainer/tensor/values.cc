// SPDX-License-Identifier: Apache-2.0
// Memory by size, and the handles on it.
#include "bindings/trainer/tensor/values.h"

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

void free_floats(float* memory) { ::operator delete(memory, kAlignment); }

}  // namespace

// Holds what was let go, by size. A model asks for the same few sizes in every step.
class MemoryPool::Shelf {
 public:
  Shelf() = default;
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;
  ~Shelf() {
    for (auto& [floats, free] : free_) {
      for (float* const memory : free) free_floats(memory);
    }
  }

  float* take(std::size_t floats) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<float*>& free = free_[floats];
      if (!free.empty()) {
        float* const memory = free.back();
        free.pop_back();
        return memory;
      }
    }
    if (floats > std::numeric_limits<std::size_t>::max() / sizeof(float)) throw std::bad_alloc();
    return static_cast<float*>(::operator new(floats * sizeof(float), kAlignment));
  }

  void give(std::size_t floats, float* memory) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      free_[floats].push_back(memory);
    } catch (...) {
      free_floats(memory);
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<float*>> free_;
};

MemoryPool::MemoryPool() : shelf_(std::make_shared<Shelf>()) {}

std::shared_ptr<float> MemoryPool::take(std::size_t floats) {
  float* const memory = shelf_->take(floats);
  return {memory, [shelf = shelf_, floats](float* gone) { shelf->give(floats, gone); }};
}

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
