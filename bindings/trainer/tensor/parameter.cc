// SPDX-License-Identifier: Apache-2.0
// Where a parameter and its gradient lie.
#include "bindings/trainer/tensor/parameter.h"

#include <algorithm>
#include <utility>

namespace ronde::trainer {

Parameter::Parameter(std::string name, Shape shape)
    : name_(std::move(name)),
      value_(Values::make(pool_, shape)),
      gradient_(Values::make(pool_, std::move(shape))) {
  std::ranges::fill(value(), 0.0F);
  std::ranges::fill(gradient(), 0.0F);
}

void Parameter::begin_step() noexcept {
  // What no pass has used may hold the sum of other ranks' gradients.
  if (!has_gradient_) std::ranges::fill(gradient(), 0.0F);
  has_gradient_ = false;
  ++step_;
}

void Parameter::place_gradient(std::span<float> memory) {
  Values elsewhere = Values::over(shape(), memory);
  std::ranges::copy(gradient(), memory.begin());
  std::swap(gradient_, elsewhere);
  if (own_gradient_.empty()) own_gradient_ = std::move(elsewhere);
}

void Parameter::take_gradient_back() noexcept {
  if (own_gradient_.empty()) return;
  gradient_ = std::exchange(own_gradient_, {});
  has_gradient_ = false;
  begin_step();
}

}  // namespace ronde::trainer
