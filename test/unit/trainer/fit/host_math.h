// SPDX-License-Identifier: Apache-2.0
// DeviceMath in host memory, in plain loops: what a device must come to.
#pragma once

#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "examples/gpu/device_math.h"

namespace ronde::trainer {

// As a column-major library does it.
inline void multiply_column_major(const ColumnMajorProduct& call, float* result) {
  for (std::size_t row = 0; row < call.rows; ++row) {
    for (std::size_t column = 0; column < call.columns; ++column) {
      float sum = 0.0F;
      for (std::size_t k = 0; k < call.terms; ++k) {
        const std::size_t left =
            call.left_transposed ? row * call.leading_left + k : k * call.leading_left + row;
        const std::size_t right = call.right_transposed ? k * call.leading_right + column
                                                        : column * call.leading_right + k;
        sum += call.left[left] * call.right[right];
      }
      result[column * call.leading_result + row] = sum;
    }
  }
}

// Thread safety: belongs to one thread.
class HostMath : public DeviceMath {
 public:
  [[nodiscard]] int device() const override { return RONDE_DEVICE_CPU; }
  [[nodiscard]] void* stream() const override { return nullptr; }
  void wait_for(Work& work) override { work.wait(); }

  [[nodiscard]] void* allocate(std::size_t bytes) override { return ::operator new(bytes); }
  void release(void* memory) noexcept override { ::operator delete(memory); }
  [[nodiscard]] void* allocate_staging(std::size_t bytes) override { return ::operator new(bytes); }
  void release_staging(void* memory) noexcept override { ::operator delete(memory); }

  void send(void* to, const void* staging, std::size_t bytes) override { copy(to, staging, bytes); }
  void write(void* to, const void* host, std::size_t bytes) override { copy(to, host, bytes); }
  void read(void* host, const void* from, std::size_t bytes) override { copy(host, from, bytes); }
  void clear(void* memory, std::size_t bytes) override {
    if (bytes != 0) std::memset(memory, 0, bytes);
  }

  void multiply(const Product& product) override {
    multiply_column_major(column_major(product), product.c);
  }
  void normalize(const std::uint8_t* from, float* to, std::size_t count, float scale,
                 float shift) override {
    for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]) * scale + shift;
  }
  void add_to_rows(const float* row, float* matrix, std::size_t rows,
                   std::size_t columns) override {
    for (std::size_t i = 0; i < rows * columns; ++i) matrix[i] += row[i % columns];
  }
  void sum_of_rows(const float* matrix, float* row, std::size_t rows,
                   std::size_t columns) override {
    for (std::size_t j = 0; j < columns; ++j) {
      row[j] = 0.0F;
      for (std::size_t i = 0; i < rows; ++i) row[j] += matrix[i * columns + j];
    }
  }
  void relu(float* values, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) values[i] = values[i] > 0.0F ? values[i] : 0.0F;
  }
  void relu_backward(const float* output, float* gradient, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) gradient[i] = output[i] > 0.0F ? gradient[i] : 0.0F;
  }
  void softmax_cross_entropy(const SoftmaxTask& task) override {
    for (std::size_t i = 0; i < task.rows; ++i) {
      const float* const row = task.logits + i * task.columns;
      std::size_t best = 0;
      double total = 0.0;
      for (std::size_t j = 0; j < task.columns; ++j) {
        if (row[j] > row[best]) best = j;
        total += std::exp(static_cast<double>(row[j]));
      }
      const std::size_t label = task.labels[i];
      task.sums->loss += std::log(total) - static_cast<double>(row[label]);
      task.sums->correct += best == label ? 1 : 0;
      if (task.gradient == nullptr) continue;
      for (std::size_t j = 0; j < task.columns; ++j) {
        const double probability = std::exp(static_cast<double>(row[j])) / total;
        task.gradient[i * task.columns + j] = static_cast<float>(
            (probability - (j == label ? 1.0 : 0.0)) / static_cast<double>(task.global_batch));
      }
    }
  }
  void sgd(const SgdTask& task) override {
    for (std::size_t i = 0; i < task.count; ++i) {
      float step = task.gradient[i];
      if (task.velocity != nullptr) {
        step = task.velocity[i] = task.momentum * task.velocity[i] + step;
      }
      task.value[i] -= task.learning_rate * step;
    }
  }

 private:
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
};

}  // namespace ronde::trainer
