// SPDX-License-Identifier: Apache-2.0
// Operations that move elements or add them up.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/operation_shapes.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

namespace {

// A shape seen from one of its sides: {outer, side, inner}.
struct Sides {
  std::size_t outer = 1;
  std::size_t side = 1;
  std::size_t inner = 1;
};

Sides around(const Tensor& tensor, std::size_t axis) {
  Sides sides;
  sides.side = tensor.side(axis);  // throws if there is no such side
  const Shape& shape = tensor.shape();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i < axis) sides.outer *= shape[i];
    if (i > axis) sides.inner *= shape[i];
  }
  return sides;
}

// Adds up the side in the middle, in double precision, and multiplies; `rest` is what is left.
Tensor sum_over(const char* operation, const Tensor& input, const Sides& sides, Shape rest,
                float factor) {
  Tape& tape = input.tape();
  const Values all = tape.plain(input.raw());
  Values output = Values::make(tape.pool(), std::move(rest));
  for (std::size_t i = 0; i < sides.outer; ++i) {
    for (std::size_t k = 0; k < sides.inner; ++k) {
      double total = 0.0;
      for (std::size_t j = 0; j < sides.side; ++j) {
        total += all.data()[(i * sides.side + j) * sides.inner + k];
      }
      output.data()[i * sides.inner + k] = static_cast<float>(total * static_cast<double>(factor));
    }
  }
  return tape.record(operation, std::move(output), {input}, [sides, factor](Backward& back) {
    const Values by_output = back.plain_gradient();
    Values gradient = back.room(0);
    for (std::size_t row = 0; row < sides.outer * sides.side; ++row) {
      const float* const from = by_output.data() + row / sides.side * sides.inner;
      float* const to = gradient.data() + row * sides.inner;
      for (std::size_t k = 0; k < sides.inner; ++k) to[k] = factor * from[k];
    }
    back.give(0, std::move(gradient));
  });
}

Tensor sum_axis(const char* operation, const Tensor& input, std::size_t axis, float factor) {
  const Sides sides = around(input, axis);
  Shape rest = input.shape();
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(axis));
  return sum_over(operation, input, sides, std::move(rest), factor);
}

// The mean of nothing is 0: a rank without samples takes part.
float share(std::size_t count) {
  return 1.0F / static_cast<float>(std::max<std::size_t>(1, count));
}

// The shape of parts side by side along `axis`.
Shape joined_shape(std::span<const Tensor> parts, std::size_t axis) {
  if (parts.empty()) throw TrainerError("concat: there are no tensors: give at least one");
  Shape joined = parts[0].shape();
  std::size_t total = parts[0].side(axis);
  for (const Tensor& part : parts.subspan(1)) {
    Shape same = part.shape();
    total += part.side(axis);
    same[axis] = joined[axis];
    if (same != joined) {
      refuse_shapes("concat along side " + std::to_string(axis), parts[0], part,
                    "all other sides must agree");
    }
  }
  joined[axis] = total;
  return joined;
}

}  // namespace

Tensor reshape(const Tensor& input, Shape shape) {
  if (elements_of(shape) != input.size()) {
    throw TrainerError("reshape: " + described(input) + " has no " + text_of(shape) +
                       " elements: the counts must agree");
  }
  Tape& tape = input.tape();
  Values output = tape.plain(input.raw());
  output.shape = std::move(shape);
  return tape.record("reshape", std::move(output), {input},
                     [before = input.shape()](Backward& back) {
                       Values gradient = back.plain_gradient();
                       gradient.shape = before;
                       back.give(0, std::move(gradient));
                     });
}

Tensor flatten(const Tensor& input) {
  const std::size_t samples = input.side(0);
  std::size_t each = 1;
  for (std::size_t i = 1; i < input.shape().size(); ++i) each *= input.side(i);
  return reshape(input, {samples, each});
}

Tensor concat(std::span<const Tensor> parts, std::size_t axis) {
  Shape shape = joined_shape(parts, axis);
  Tape& tape = parts[0].tape();
  std::size_t outer = 1;
  for (std::size_t i = 0; i < axis; ++i) outer *= shape[i];
  Values output = Values::make(tape.pool(), std::move(shape));
  std::vector<std::size_t> widths;  // how much each part has of a row
  std::size_t row = 0;
  for (const Tensor& part : parts) {
    widths.push_back(outer == 0 ? 0 : part.size() / outer);
    row += widths.back();
  }
  std::size_t column = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const Values from = tape.plain(parts[p].raw());
    for (std::size_t i = 0; i < outer; ++i) {
      std::copy_n(from.data() + i * widths[p], widths[p], output.data() + i * row + column);
    }
    column += widths[p];
  }
  return tape.record("concat", std::move(output), parts, [widths, outer, row](Backward& back) {
    const Values gradient = back.plain_gradient();
    std::size_t first = 0;
    for (std::size_t p = 0; p < widths.size(); first += widths[p++]) {
      if (!back.wants(p)) continue;
      Values part = back.room(p);
      for (std::size_t i = 0; i < outer; ++i) {
        std::copy_n(gradient.data() + i * row + first, widths[p], part.data() + i * widths[p]);
      }
      back.give(p, std::move(part));
    }
  });
}

Tensor sum(const Tensor& input) { return sum_over("sum", input, {1, input.size(), 1}, {}, 1.0F); }
Tensor mean(const Tensor& input) {
  return sum_over("mean", input, {1, input.size(), 1}, {}, share(input.size()));
}
Tensor sum(const Tensor& input, std::size_t axis) { return sum_axis("sum", input, axis, 1.0F); }
Tensor mean(const Tensor& input, std::size_t axis) {
  return sum_axis("mean", input, axis, share(input.side(axis)));
}

}  // namespace ronde::trainer
