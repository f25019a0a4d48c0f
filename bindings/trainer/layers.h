// SPDX-License-Identifier: Apache-2.0
// The layers of a model: dense and ReLU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/trainer/tensor.h"

namespace ronde::trainer {

// What is learned. Its name, such as "fc1/weight", is the same on every rank.
struct Parameter {
  std::string name;
  Matrix value;
  Matrix gradient;        // of the last backward pass; stays where it is for the model's life
  std::size_t index = 0;  // its place in Model::parameters()
};

// Called by a backward pass as soon as a gradient has its final value on this rank.
using GradientReady = std::function<void(const Parameter&)>;

// A layer keeps its parameters but no activations: the model passes these in.
//
// Thread safety: a layer belongs to one thread at a time.
class Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  // One row per sample.
  virtual void forward(const Matrix& input, Matrix& output) const = 0;
  // From the gradient of the loss by the output: first the gradients of the parameters, each
  // announced through `ready`, so that it travels while the rest is computed; then the gradient by
  // the input, unless `input_gradient` is null (nobody needs that of the first layer).
  virtual void backward(const Matrix& input, const Matrix& output, const Matrix& output_gradient,
                        Matrix* input_gradient, const GradientReady& ready) = 0;
  [[nodiscard]] virtual std::vector<Parameter*> parameters() { return {}; }
};

enum class Initialization {
  kHe,     // for a layer that a ReLU follows
  kGlorot  // for the last layer
};

// output = input * weight + bias; the weight has a row per input and a column per output.
class Dense final : public Layer {
 public:
  // Weights are drawn from `seed` and the name, so that a layer's start does not depend on its
  // neighbours; biases start at 0.
  Dense(std::string_view name, std::size_t inputs, std::size_t outputs,
        Initialization initialization, std::uint64_t seed);

  void forward(const Matrix& input, Matrix& output) const override;
  void backward(const Matrix& input, const Matrix& output, const Matrix& output_gradient,
                Matrix* input_gradient, const GradientReady& ready) override;
  [[nodiscard]] std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  Parameter weight_;
  Parameter bias_;
};

class Relu final : public Layer {
 public:
  void forward(const Matrix& input, Matrix& output) const override;
  void backward(const Matrix& input, const Matrix& output, const Matrix& output_gradient,
                Matrix* input_gradient, const GradientReady& ready) override;
};

}  // namespace ronde::trainer
