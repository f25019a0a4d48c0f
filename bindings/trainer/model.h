// SPDX-License-Identifier: Apache-2.0
// A model is a sequence of layers. It knows nothing of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/layers.h"
#include "bindings/trainer/tensor.h"

namespace ronde::trainer {

// Thread safety: a model belongs to one thread at a time.
class Model {
 public:
  template <typename AnyLayer, typename... Arguments>
  void add(Arguments&&... arguments) {
    append(std::make_unique<AnyLayer>(std::forward<Arguments>(arguments)...));
  }

  // The output of the last layer, one row per sample; valid until the next forward().
  const Matrix& forward(const Matrix& input);
  // After forward(input): fills the gradient of every parameter, the last layer's first, and
  // announces each through `ready`.
  void backward(const Matrix& input, const Matrix& output_gradient, const GradientReady& ready);

  // In the order of the layers. The parameters stay where they are for the model's life.
  [[nodiscard]] std::span<Parameter* const> parameters() const { return parameters_; }
  // 16 hexadecimal digits over the bytes of all parameters, in order.
  [[nodiscard]] std::string parameter_hash() const;

 private:
  void append(std::unique_ptr<Layer> layer);

  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<Parameter*> parameters_;
  std::vector<Matrix> outputs_;    // of each layer
  std::vector<Matrix> gradients_;  // by the output of each layer but the last
};

// Multilayer perceptron with one hidden layer: dense "fc1", ReLU, dense "fc2".
Model make_mlp(std::size_t inputs, std::size_t hidden, std::size_t classes, std::uint64_t seed);

}  // namespace ronde::trainer
