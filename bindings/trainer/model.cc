// SPDX-License-Identifier: Apache-2.0
// Running a sequence of layers: see model.h.
#include "bindings/trainer/model.h"

#include <cinttypes>
#include <cstdio>

#include "bindings/trainer/errors.h"
#include "bindings/trainer/hash.h"

namespace ronde::trainer {

void Model::append(std::unique_ptr<Layer> layer) {
  for (Parameter* parameter : layer->parameters()) {
    parameter->index = parameters_.size();
    parameters_.push_back(parameter);
  }
  layers_.push_back(std::move(layer));
  outputs_.emplace_back();
  gradients_.emplace_back();
}

const Matrix& Model::forward(const Matrix& input) {
  if (layers_.empty()) throw TrainerError("the model has no layers: add one");
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->forward(i == 0 ? input : outputs_[i - 1], outputs_[i]);
  }
  return outputs_.back();
}

void Model::backward(const Matrix& input, const Matrix& output_gradient,
                     const GradientReady& ready) {
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const bool last = i + 1 == layers_.size();
    layers_[i]->backward(i == 0 ? input : outputs_[i - 1], outputs_[i],
                         last ? output_gradient : gradients_[i],
                         i == 0 ? nullptr : &gradients_[i - 1], ready);
  }
}

std::string Model::parameter_hash() const {
  Hash hash;
  for (const Parameter* parameter : parameters_) {
    hash.add(std::as_bytes(std::as_const(parameter->value).values()));
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, hash.value());
  return digits;
}

Model make_mlp(std::size_t inputs, std::size_t hidden, std::size_t classes, std::uint64_t seed) {
  Model model;
  model.add<Dense>("fc1", inputs, hidden, Initialization::kHe, seed);
  model.add<Relu>();
  model.add<Dense>("fc2", hidden, classes, Initialization::kGlorot, seed);
  return model;
}

}  // namespace ronde::trainer
