// SPDX-License-Identifier: Apache-2.0
// Operations on tensors. Each computes at once and records itself on the tape of its first
// argument, on which all of them must lie. Wrong shapes throw TrainerError with the shapes of both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "bindings/trainer/tensor/kernels.h"
#include "bindings/trainer/tensor/tensor.h"

namespace ronde::trainer {

// Products (oneDNN).
Tensor matmul(const Tensor& a, const Tensor& b);  // {rows, terms} * {terms, columns}
// input * weights + bias: {samples, inputs} * {inputs, outputs} + {outputs}.
Tensor linear(const Tensor& input, const Tensor& weights, const Tensor& bias);
// Convolution (cross-correlation, as everywhere in the field) of {samples, channels, height, width}
// with {outputs, channels, height, width} and {outputs}; window.side must be that of the weights.
Tensor convolution(const Tensor& input, const Tensor& weights, const Tensor& bias,
                   const Window& window);
Tensor max_pool(const Tensor& input, const Window& window);  // NaN where a window has one
// The mean over the whole window; what is padded counts as zeros, as torch.nn.AvgPool2d has it.
Tensor average_pool(const Tensor& input, const Window& window);
Tensor relu(const Tensor& input);

// Element by element. `b` may be of one element, or have the shape of the last sides of `a` (a
// bias).
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, float factor);
Tensor sigmoid(const Tensor& input);
// Drops each element with probability `rate` while training, and scales the others by 1/(1 - rate).
// What is dropped depends on Pass::seed and epoch, the sample's number and repetition, `layer`, and
// how often it has been called in this pass, alone.
Tensor dropout(const Tensor& input, double rate, std::string_view layer);

// The same elements in another shape; `shape` must have as many.
Tensor reshape(const Tensor& input, Shape shape);
// {samples, ...} as {samples, all the rest}.
Tensor flatten(const Tensor& input);
// Side by side along side number `axis`; the other sides must agree.
Tensor concat(std::span<const Tensor> parts, std::size_t axis);
inline Tensor concat(std::initializer_list<Tensor> parts, std::size_t axis) {
  return concat(std::span(parts.begin(), parts.size()), axis);
}

Tensor sum(const Tensor& input);   // of all elements, added in double precision
Tensor mean(const Tensor& input);  // likewise; 0 where there are none
// Over side number `axis`, which goes away.
Tensor sum(const Tensor& input, std::size_t axis);
Tensor mean(const Tensor& input, std::size_t axis);

}  // namespace ronde::trainer
