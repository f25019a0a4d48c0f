// SPDX-License-Identifier: Apache-2.0
// What a multilayer perceptron asks of a device, as an interface: no CUDA is in it, and what uses
// it (device_learner.h) is tested on a machine without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ronde/ronde.hpp>
#include <span>
#include <utility>

namespace ronde::trainer {

// c = a * b, with a or b transposed. All are dense and row-major as they lie in memory, and no side
// is 0: c has rows x columns, and each of its elements is a sum of `terms` products.
struct Product {
  enum class Kind { kPlain, kLeftTransposed, kRightTransposed };
  Kind kind = Kind::kPlain;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t terms = 0;
};

// The same product as libraries with column-major matrices see it: the transposed result of the
// swapped factors. Sides "leading" are the distances of columns in memory.
struct ColumnMajorProduct {
  const float* left = nullptr;
  const float* right = nullptr;
  bool left_transposed = false;
  bool right_transposed = false;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t terms = 0;
  std::size_t leading_left = 0;
  std::size_t leading_right = 0;
  std::size_t leading_result = 0;
};
[[nodiscard]] ColumnMajorProduct column_major(const Product& product);

// Added to, on the device.
struct DeviceSums {
  double loss = 0.0;
  std::int64_t correct = 0;
};

// Softmax and cross-entropy, as the loss of the host computes it. `gradient` may be null.
struct SoftmaxTask {
  const float* logits = nullptr;
  const std::uint8_t* labels = nullptr;
  float* gradient = nullptr;
  DeviceSums* sums = nullptr;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t global_batch = 1;
};

struct SgdTask {
  float* value = nullptr;
  float* velocity = nullptr;  // null: no momentum
  const float* gradient = nullptr;
  std::size_t count = 0;
  float learning_rate = 0.0F;
  float momentum = 0.0F;
};

// One device, and one stream of it in which everything happens in the order of the calls. Pointers
// are memory of the device but where a name says otherwise. Calls return when the work is in the
// stream, and throw TrainerError; counts of 0 are fine.
//
// Thread safety: belongs to one thread.
class DeviceMath {
 public:
  DeviceMath() = default;
  DeviceMath(const DeviceMath&) = delete;
  DeviceMath& operator=(const DeviceMath&) = delete;
  virtual ~DeviceMath() = default;

  // For ronde::DeviceSpan.
  [[nodiscard]] virtual int device() const = 0;
  [[nodiscard]] virtual void* stream() const = 0;
  // What comes into the stream from now on begins when the work is over.
  virtual void wait_for(Work& work) = 0;

  // Freed when nothing in the stream uses it any more.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  // Host memory that the device reads by itself, for send().
  [[nodiscard]] virtual void* allocate_staging(std::size_t bytes) = 0;
  virtual void release_staging(void* memory) noexcept = 0;

  // `staging` is left alone until the copy is over.
  virtual void send(void* to, const void* staging, std::size_t bytes) = 0;
  // Between the device and any host memory; return when it is over.
  virtual void write(void* to, const void* host, std::size_t bytes) = 0;
  virtual void read(void* host, const void* from, std::size_t bytes) = 0;
  virtual void clear(void* memory, std::size_t bytes) = 0;

  virtual void multiply(const Product& product) = 0;
  // to = from * scale + shift
  virtual void normalize(const std::uint8_t* from, float* to, std::size_t count, float scale,
                         float shift) = 0;
  virtual void add_to_rows(const float* row, float* matrix, std::size_t rows,
                           std::size_t columns) = 0;
  virtual void sum_of_rows(const float* matrix, float* row, std::size_t rows,
                           std::size_t columns) = 0;
  virtual void relu(float* values, std::size_t count) = 0;
  // The gradient is 0 where the output of the ReLU was.
  virtual void relu_backward(const float* output, float* gradient, std::size_t count) = 0;
  virtual void softmax_cross_entropy(const SoftmaxTask& task) = 0;
  virtual void sgd(const SgdTask& task) = 0;
};

// Memory of a device, which grows when more is asked for. Thread safety: that of its DeviceMath.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(DeviceMath& math) : math_(&math) {}
  DeviceArray(DeviceArray&& other) noexcept
      : math_(other.math_),
        memory_(std::exchange(other.memory_, nullptr)),
        size_(other.size_),
        room_(other.room_) {}
  DeviceArray& operator=(DeviceArray&&) = delete;
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { math_->release(memory_); }

  // The contents are unspecified afterwards.
  void resize(std::size_t size) {
    if (size > room_) {
      math_->release(std::exchange(memory_, nullptr));
      room_ = 0;
      memory_ = static_cast<T*>(math_->allocate(size * sizeof(T)));
      room_ = size;
    }
    size_ = size;
  }
  void clear() { math_->clear(memory_, size_ * sizeof(T)); }

  [[nodiscard]] T* data() const { return memory_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<T> span() const { return {memory_, size_}; }

 private:
  DeviceMath* math_;
  T* memory_ = nullptr;
  std::size_t size_ = 0;
  std::size_t room_ = 0;
};

}  // namespace ronde::trainer
