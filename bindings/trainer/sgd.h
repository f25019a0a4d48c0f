// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with momentum.
#pragma once

#include <span>
#include <vector>

#include "bindings/trainer/model.h"

namespace ronde::trainer {

struct SgdOptions {
  double learning_rate = 0.0;
  double momentum = 0.0;
};

// velocity = momentum * velocity + gradient; value -= learning_rate * velocity.
//
// Thread safety: belongs to the thread of its model.
class Sgd {
 public:
  // The model must outlive this object.
  Sgd(Model& model, double learning_rate, double momentum);

  void step();

  // The velocity of each parameter, in order: the optimiser's state. Empty without momentum.
  [[nodiscard]] std::span<Matrix> velocities() { return velocities_; }

 private:
  Model& model_;
  float learning_rate_;
  float momentum_;
  std::vector<Matrix> velocities_;
};

}  // namespace ronde::trainer
