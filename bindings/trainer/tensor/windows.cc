// SPDX-License-Identifier: Apache-2.0
// Operations that move a window over images, and the activation between them. They take and give
// tensors in oneDNN's own layouts, so that between them nothing is put into another order.
#include <string>
#include <utility>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/operation_shapes.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

Shape windowed(const Shape& input, const Window& window, std::size_t channels) {
  Shape shape{input.at(0), channels, 0, 0};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t padded = input.at(2 + i) + 2 * window.padding[i];
    if (window.side[i] == 0 || window.stride[i] == 0 || window.side[i] > padded) {
      throw TrainerError("a window of " + text_of({window.side[0], window.side[1]}) +
                         " with strides " + text_of({window.stride[0], window.stride[1]}) +
                         " does not fit into a tensor of " + text_of(input) + " with padding " +
                         text_of({window.padding[0], window.padding[1]}) +
                         ": make it smaller, or the image larger; strides are at least 1");
    }
    shape[2 + i] = (padded - window.side[i]) / window.stride[i] + 1;
  }
  return shape;
}

namespace {

void require_fits(const std::string& operation, const Tensor& input, const Window& window) {
  require_sides(operation, input, 4);
  try {
    static_cast<void>(windowed(input.shape(), window, 1));
  } catch (const TrainerError& error) {
    throw TrainerError(operation + ": " + error.what());
  }
}

Tensor pool(const char* operation, const Tensor& input, const Window& window, Pooling pooling) {
  require_fits(operation, input, window);
  // A pool over padding alone would have nothing to choose from.
  if (window.padding[0] >= window.side[0] || window.padding[1] >= window.side[1]) {
    throw TrainerError(std::string(operation) + ": a window of " +
                       text_of({window.side[0], window.side[1]}) + " with padding " +
                       text_of({window.padding[0], window.padding[1]}) +
                       " may lie outside the image: pad by less than the window's side");
  }
  Tape& tape = input.tape();
  Pooled pooled = tape.kernels().pool(input.raw(), window, pooling, input.needs_gradient());
  return tape.record(
      operation, std::move(pooled.output), {input},
      [places = std::move(pooled.places), shape = input.shape(), window, pooling](Backward& back) {
        back.give(0, back.tape().kernels().pool_backward(back.gradient(), places, shape, window,
                                                         pooling));
      });
}

void require_convolves(const Tensor& input, const Tensor& weights, const Tensor& bias,
                       const Window& window) {
  require_sides("convolution", input, 4);
  require_sides("convolution", weights, 4);
  require_sides("convolution", bias, 1);
  if (input.side(1) != weights.side(1)) {
    refuse_shapes("convolution", input, weights, "both must have as many channels (side 1)");
  }
  if (bias.side(0) != weights.side(0)) {
    refuse_shapes("convolution", bias, weights, "the bias must have an element for each output");
  }
  if (window.side[0] != weights.side(2) || window.side[1] != weights.side(3)) {
    throw TrainerError("convolution: a window of " + text_of({window.side[0], window.side[1]}) +
                       " is not that of the weights " + described(weights) +
                       ": give the last two sides of the weights");
  }
  require_fits("convolution", input, window);
}

}  // namespace

Tensor convolution(const Tensor& input, const Tensor& weights, const Tensor& bias,
                   const Window& window) {
  require_convolves(input, weights, bias, window);
  Tape& tape = input.tape();
  const Values& from = input.raw();
  const Values filters = tape.plain(weights.raw());
  Values output = tape.kernels().convolve(from, filters, tape.plain(bias.raw()), window);
  return tape.record(
      "convolution", std::move(output), {input, weights, bias},
      [from, filters, window](Backward& back) {
        Kernels& kernels = back.tape().kernels();
        const Values& gradient = back.gradient();
        if (back.wants(1) || back.wants(2)) {
          Values by_weights =
              back.wants(1) ? back.room(1) : Values::make(back.tape().pool(), filters.shape);
          Values by_bias = back.wants(2) ? back.room(2) : Values();
          kernels.convolve_by_weights(from, gradient, by_weights, by_bias, window);
          if (back.wants(1)) back.give(1, std::move(by_weights));
          if (back.wants(2)) back.give(2, std::move(by_bias));
          if (back.wants(1)) back.finish(1);
          if (back.wants(2)) back.finish(2);
        }
        if (back.wants(0)) {
          back.give(0, kernels.convolve_by_input(gradient, filters, from.shape, window));
        }
      });
}

Tensor max_pool(const Tensor& input, const Window& window) {
  return pool("max_pool", input, window, Pooling::kLargest);
}

Tensor average_pool(const Tensor& input, const Window& window) {
  return pool("average_pool", input, window, Pooling::kMean);
}

Tensor relu(const Tensor& input) {
  Tape& tape = input.tape();
  const Values output = tape.kernels().relu(input.raw());
  return tape.record("relu", output, {input}, [output](Backward& back) {
    back.give(0, back.tape().kernels().relu_backward(output, back.gradient()));
  });
}

}  // namespace ronde::trainer
