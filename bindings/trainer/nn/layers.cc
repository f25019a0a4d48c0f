// SPDX-License-Identifier: Apache-2.0
// Layers: parameters and the operations that use them.
#include "bindings/trainer/nn/layers.h"

#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

Tensor Layers::operator()(const Tensor& input) {
  Tensor tensor = input;
  for (const auto& layer : layers_) tensor = (*layer)(tensor);
  return tensor;
}

std::vector<Parameter*> Layers::parameters() {
  std::vector<Parameter*> all;
  for (const auto& layer : layers_) {
    for (Parameter* const parameter : layer->parameters()) all.push_back(parameter);
  }
  return all;
}

std::vector<StateTensor> Layers::statistics() {
  std::vector<StateTensor> all;
  for (const auto& layer : layers_) {
    for (const StateTensor& statistic : layer->statistics()) all.push_back(statistic);
  }
  return all;
}

Linear::Linear(const std::string& name, std::size_t inputs, std::size_t outputs,
               Initialization initialization, std::uint64_t seed)
    : weight_(name + "/weight", {inputs, outputs}), bias_(name + "/bias", {outputs}) {
  initialize(weight_, initialization, inputs, outputs, seed);
}

Tensor Linear::operator()(const Tensor& input) {
  Tape& tape = input.tape();
  return linear(input, tape.use(weight_), tape.use(bias_));
}

Convolution::Convolution(const std::string& name, std::size_t channels, std::size_t outputs,
                         const Window& window, Initialization initialization, std::uint64_t seed)
    : window_(window),
      weight_(name + "/weight", {outputs, channels, window.side[0], window.side[1]}),
      bias_(name + "/bias", {outputs}) {
  const std::size_t each = window.side[0] * window.side[1];
  initialize(weight_, initialization, channels * each, outputs * each, seed);
}

Tensor Convolution::operator()(const Tensor& input) {
  Tape& tape = input.tape();
  return convolution(input, tape.use(weight_), tape.use(bias_), window_);
}

}  // namespace ronde::trainer
