// SPDX-License-Identifier: Apache-2.0
// Reading a tensor.
#include "bindings/trainer/tensor/tensor.h"

#include <string>
#include <utility>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

Tensor::Tensor(Tape& tape, const char* operation, Values values, std::size_t node)
    : tape_(&tape),
      values_(std::move(values)),
      node_(node),
      pass_(tape.pass_number_),
      operation_(operation) {}

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
  if (pass_ != tape_->pass_number_) {
    const std::string name = tape_->name_of(*this);
    throw TrainerError((name.empty() ? operation_ : name) + " (" + text_of(shape()) +
                       ") is a tensor of pass " + std::to_string(pass_) +
                       " of its tape, which is in pass " + std::to_string(tape_->pass_number_) +
                       ": make it again after begin(), from numbers that you have kept");
  }
  return *tape_;
}

const Values& Tensor::raw() const {
  static_cast<void>(tape());
  return values_;
}

std::span<const float> Tensor::values() const { return tape().read(*this); }

}  // namespace ronde::trainer
