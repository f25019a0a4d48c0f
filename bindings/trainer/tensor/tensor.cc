// SPDX-License-Identifier: Apache-2.0
// Reading a tensor.
#include "bindings/trainer/tensor/tensor.h"

#include <string>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

std::size_t Tensor::side(std::size_t i) const {
  if (i >= shape().size()) {
    throw TrainerError("a tensor of " + text_of(shape()) + " has no side " + std::to_string(i) +
                       ": sides count from 0");
  }
  return shape()[i];
}

float Tensor::item() const {
  if (size() != 1) {
    throw TrainerError("a tensor of " + text_of(shape()) +
                       " is no single number: read it with values()");
  }
  return values()[0];
}

Tape& Tensor::tape() const {
  if (tape_ == nullptr) {
    throw TrainerError("an empty tensor lies on no tape: make one with Tape::constant()");
  }
  return *tape_;
}

}  // namespace ronde::trainer
