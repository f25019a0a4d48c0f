// SPDX-License-Identifier: Apache-2.0
// Matrix products over OpenBLAS: see tensor.h.
#include "bindings/trainer/tensor.h"

#include <cblas.h>

#include <limits>

#include "bindings/trainer/errors.h"

namespace ronde::trainer {

namespace {

blasint blas_size(std::size_t value) {
  if (value > static_cast<std::size_t>(std::numeric_limits<blasint>::max())) {
    throw TrainerError("a matrix side of " + std::to_string(value) +
                       " is too large for the BLAS library: use a smaller batch or layer");
  }
  return static_cast<blasint>(value);
}

void require(bool condition) {
  if (!condition) throw TrainerError("the sizes of a matrix product do not fit: check the layers");
}

void gemm(CBLAS_TRANSPOSE transpose_a, CBLAS_TRANSPOSE transpose_b, std::size_t terms,
          const Matrix& a, const Matrix& b, float beta, Matrix& c) {
  if (c.size() == 0) return;
  if (terms == 0) {
    // BLAS libraries do not agree on what happens to `c` here.
    if (beta == 0.0F) c.fill(0.0F);
    return;
  }
  cblas_sgemm(CblasRowMajor, transpose_a, transpose_b, blas_size(c.rows()), blas_size(c.columns()),
              blas_size(terms), 1.0F, a.data(), blas_size(a.columns()), b.data(),
              blas_size(b.columns()), beta, c.data(), blas_size(c.columns()));
}

}  // namespace

void multiply_add(const Matrix& a, const Matrix& b, Matrix& sum) {
  require(a.columns() == b.rows() && a.rows() == sum.rows() && b.columns() == sum.columns());
  gemm(CblasNoTrans, CblasNoTrans, a.columns(), a, b, 1.0F, sum);
}

void multiply_transposed_left(const Matrix& a, const Matrix& b, Matrix& c) {
  require(a.rows() == b.rows() && a.columns() == c.rows() && b.columns() == c.columns());
  gemm(CblasTrans, CblasNoTrans, a.rows(), a, b, 0.0F, c);
}

void multiply_transposed_right(const Matrix& a, const Matrix& b, Matrix& c) {
  require(a.columns() == b.columns() && a.rows() == c.rows() && b.rows() == c.columns());
  gemm(CblasNoTrans, CblasTrans, a.columns(), a, b, 0.0F, c);
}

void set_blas_threads(int threads) { openblas_set_num_threads(threads); }

}  // namespace ronde::trainer
