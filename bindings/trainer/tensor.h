// SPDX-License-Identifier: Apache-2.0
// A dense row-major f32 matrix, and the matrix products of the training core (OpenBLAS).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace ronde::trainer {

// A vector is a matrix of one row. Thread safety: that of a std::vector.
class Matrix {
 public:
  Matrix() = default;
  Matrix(std::size_t rows, std::size_t columns)
      : rows_(rows), columns_(columns), values_(rows * columns) {}

  // The contents are unspecified afterwards. Memory is kept, so that a batch that is a little
  // smaller or larger than the last one allocates nothing.
  void resize(std::size_t rows, std::size_t columns) {
    rows_ = rows;
    columns_ = columns;
    values_.resize(rows * columns);
  }
  void fill(float value) { std::fill(values_.begin(), values_.end(), value); }

  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::size_t columns() const noexcept { return columns_; }
  [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }

  [[nodiscard]] float* data() noexcept { return values_.data(); }
  [[nodiscard]] const float* data() const noexcept { return values_.data(); }
  [[nodiscard]] std::span<float> values() noexcept { return values_; }
  [[nodiscard]] std::span<const float> values() const noexcept { return values_; }
  [[nodiscard]] std::span<float> row(std::size_t i) {
    return values().subspan(i * columns_, columns_);
  }
  [[nodiscard]] std::span<const float> row(std::size_t i) const {
    return values().subspan(i * columns_, columns_);
  }

 private:
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
  std::vector<float> values_;
};

// The three products of a dense layer; the sizes must fit. A product over zero terms is zero.
void multiply_add(const Matrix& a, const Matrix& b, Matrix& sum);  // sum += a * b
void multiply_transposed_left(const Matrix& a, const Matrix& b,
                              Matrix& c);  // c = transposed(a) * b
void multiply_transposed_right(const Matrix& a, const Matrix& b,
                               Matrix& c);  // c = a * transposed(b)

// Threads that one matrix product of this process may use.
void set_blas_threads(int threads);

}  // namespace ronde::trainer
