// SPDX-License-Identifier: Apache-2.0
// Products of matrices.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "bindings/trainer/tensor/operation_shapes.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

namespace {

// Give the gradients of a product by its left factor, and by its right one.
void give_left(Backward& back, std::size_t input, const Values& gradient, const Values& right) {
  Values room = back.room(input);
  back.tape().kernels().multiply(gradient, false, right, true, room);
  back.give(input, std::move(room));
}

void give_right(Backward& back, std::size_t input, const Values& left, const Values& gradient) {
  Values room = back.room(input);
  back.tape().kernels().multiply(left, true, gradient, false, room);
  back.give(input, std::move(room));
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  require_sides("matmul", a, 2);
  require_sides("matmul", b, 2);
  if (a.side(1) != b.side(0)) {
    refuse_shapes("matmul", a, b, "the first must have as many columns as the second has rows");
  }
  Tape& tape = a.tape();
  const Values left = tape.plain(a.raw());
  const Values right = tape.plain(b.raw());
  Values output = Values::make(tape.pool(), {a.side(0), b.side(1)});
  tape.kernels().multiply(left, false, right, false, output);
  return tape.record("matmul", std::move(output), {a, b}, [left, right](Backward& back) {
    const Values gradient = back.plain_gradient();
    if (back.wants(0)) give_left(back, 0, gradient, right);
    if (back.wants(1)) give_right(back, 1, left, gradient);
  });
}

namespace {

void require_linear(const Tensor& input, const Tensor& weights, const Tensor& bias) {
  require_sides("linear", input, 2);
  require_sides("linear", weights, 2);
  require_sides("linear", bias, 1);
  if (input.side(1) != weights.side(0)) {
    refuse_shapes("linear", input, weights, "the weights must have a row for each input");
  }
  if (bias.side(0) != weights.side(1)) {
    refuse_shapes("linear", bias, weights, "the bias must have an element for each output");
  }
}

void sum_rows(const Values& matrix, const Values& sums) {
  const std::size_t columns = sums.size();
  float* const out = sums.data();
  std::fill_n(out, columns, 0.0F);
  for (std::size_t i = 0; i < matrix.size(); i += columns) {
    const float* const row = matrix.data() + i;
    for (std::size_t j = 0; j < columns; ++j) out[j] += row[j];
  }
}

}  // namespace

Tensor linear(const Tensor& input, const Tensor& weights, const Tensor& bias) {
  require_linear(input, weights, bias);
  Tape& tape = input.tape();
  const Values from = tape.plain(input.raw());
  const Values matrix = tape.plain(weights.raw());
  const Values offsets = tape.plain(bias.raw());
  Values output = Values::make(tape.pool(), {input.side(0), weights.side(1)});
  for (std::size_t i = 0; i < output.size(); i += offsets.size()) {
    std::ranges::copy(offsets.plain(), output.data() + i);
  }
  tape.kernels().multiply(from, false, matrix, false, output, true);
  return tape.record("linear", std::move(output), {input, weights, bias},
                     [from, matrix](Backward& back) {
                       const Values gradient = back.plain_gradient();
                       if (back.wants(1)) {
                         give_right(back, 1, from, gradient);
                         back.finish(1);
                       }
                       if (back.wants(2)) {
                         Values by_bias = back.room(2);
                         sum_rows(gradient, by_bias);
                         back.give(2, std::move(by_bias));
                         back.finish(2);
                       }
                       if (back.wants(0)) give_left(back, 0, gradient, matrix);
                     });
}

}  // namespace ronde::trainer
