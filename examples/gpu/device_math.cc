// SPDX-License-Identifier: Apache-2.0
// Products as libraries with column-major matrices see them.
#include "examples/gpu/device_math.h"

namespace ronde::trainer {

// A row-major matrix is the column-major one of its transpose, and transposed(a * b) is
// transposed(b) * transposed(a): so nothing is moved, the factors change places, and what was to be
// transposed still is.
ColumnMajorProduct column_major(const Product& product) {
  const bool a_transposed = product.kind == Product::Kind::kLeftTransposed;
  const bool b_transposed = product.kind == Product::Kind::kRightTransposed;
  ColumnMajorProduct result;
  result.left = product.b;
  result.right = product.a;
  result.left_transposed = b_transposed;
  result.right_transposed = a_transposed;
  result.rows = product.columns;
  result.columns = product.rows;
  result.terms = product.terms;
  // The length of a row in memory.
  result.leading_left = b_transposed ? product.terms : product.columns;
  result.leading_right = a_transposed ? product.rows : product.terms;
  result.leading_result = product.columns;
  return result;
}

}  // namespace ronde::trainer
