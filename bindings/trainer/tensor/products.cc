// SPDX-License-Identifier: Apache-2.0
// Products of matrices.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "bindings/trainer/tensor/operation_shapes.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

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
    Kernels& kernels = back.tape().kernels();
    const Values gradient = back.plain_gradient();
    if (back.wants(0)) {
      Values by_left = back.room(0);
      kernels.multiply(gradient, false, right, true, by_left);
      back.give(0, std::move(by_left));
    }
    if (back.wants(1)) {
      Values by_right = back.room(1);
      kernels.multiply(left, true, gradient, false, by_right);
      back.give(1, std::move(by_right));
    }
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
                       Kernels& kernels = back.tape().kernels();
                       const Values gradient = back.plain_gradient();
                       if (back.wants(1)) {
                         Values by_weights = back.room(1);
                         kernels.multiply(from, true, gradient, false, by_weights);
                         back.give(1, std::move(by_weights));
                         back.finish(1);
                       }
                       if (back.wants(2)) {
                         Values by_bias = back.room(2);
                         sum_rows(gradient, by_bias);
                         back.give(2, std::move(by_bias));
                         back.finish(2);
                       }
                       if (back.wants(0)) {
                         Values by_input = back.room(0);
                         kernels.multiply(gradient, false, matrix, true, by_input);
                         back.give(0, std::move(by_input));
                       }
                     });
}

}  // namespace ronde::trainer
