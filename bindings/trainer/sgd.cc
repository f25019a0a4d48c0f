// SPDX-License-Identifier: Apache-2.0
// One step down the gradient: see sgd.h.
#include "bindings/trainer/sgd.h"

namespace ronde::trainer {

Sgd::Sgd(Model& model, double learning_rate, double momentum)
    : model_(model),
      learning_rate_(static_cast<float>(learning_rate)),
      momentum_(static_cast<float>(momentum)) {
  if (momentum_ == 0.0F) return;
  for (const Parameter* parameter : model_.parameters()) {
    velocities_.emplace_back(parameter->value.rows(), parameter->value.columns());
  }
}

void Sgd::step() {
  for (Parameter* parameter : model_.parameters()) {
    const float* gradient = parameter->gradient.data();
    float* value = parameter->value.data();
    const std::size_t size = parameter->value.size();
    if (velocities_.empty()) {
      for (std::size_t i = 0; i < size; ++i) value[i] -= learning_rate_ * gradient[i];
      continue;
    }
    float* velocity = velocities_[parameter->index].data();
    for (std::size_t i = 0; i < size; ++i) {
      velocity[i] = momentum_ * velocity[i] + gradient[i];
      value[i] -= learning_rate_ * velocity[i];
    }
  }
}

}  // namespace ronde::trainer
