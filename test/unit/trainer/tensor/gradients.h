// SPDX-License-Identifier: Apache-2.0
// Compares a gradient that the tape found with differences of the function itself.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/random.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

// Numbers in -1 .. 1, the same in every run.
inline std::vector<float> numbers(const Shape& shape, std::uint64_t seed) {
  Generator generator(seed);
  std::vector<float> result(elements_of(shape));
  for (float& value : result) value = generator.uniform(-1.0F, 1.0F);
  return result;
}

// The text with which this is refused.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const TrainerError& error) {
    return error.what();
  }
  return "nothing was refused";
}

struct Given {
  Shape shape;
  std::vector<float> values;
};

// A function of tensors on one tape.
using Function = std::function<Tensor(std::span<const Tensor>)>;

// A large input has only about so many of its elements tried, to save time. The number is a prime,
// so that the tried ones lie at all places of every side.
inline constexpr std::size_t kTried = 97;

// Checks the gradient of sum(function(inputs) * weights), with weights of its own for each element,
// by every input. Differences are taken over `distance`, which must not cross a kink.
inline void expect_gradients(const std::vector<Given>& inputs, const Function& function,
                             const Pass& pass = {}, float distance = 1e-2F,
                             double tolerance = 2e-2) {
  Tape tape;
  const auto value_of = [&](const std::vector<Given>& at, std::vector<Tensor>* variables) {
    tape.begin(pass);
    std::vector<Tensor> tensors;
    for (const Given& one : at) tensors.push_back(tape.variable(one.shape, one.values));
    const Tensor output = function(tensors);
    const std::vector<float> weights = numbers(output.shape(), 99);
    if (variables != nullptr) {
      *variables = tensors;
      tape.backward(sum(output * tape.constant(output.shape(), weights)));
    }
    double total = 0.0;
    const std::span<const float> values = output.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      total += static_cast<double>(values[i]) * weights[i];
    }
    return total;
  };
  std::vector<Tensor> variables;
  value_of(inputs, &variables);
  std::vector<std::vector<float>> gradients;
  gradients.reserve(variables.size());
  for (const Tensor& variable : variables) gradients.push_back(tape.gradient(variable));
  for (std::size_t input = 0; input < inputs.size(); ++input) {
    const std::size_t stride = std::max<std::size_t>(1, inputs[input].values.size() / kTried);
    for (std::size_t i = 0; i < inputs[input].values.size(); i += stride) {
      std::vector<Given> moved = inputs;
      moved[input].values[i] += distance;
      const double above = value_of(moved, nullptr);
      moved[input].values[i] = inputs[input].values[i] - distance;
      const double below = value_of(moved, nullptr);
      const double expected = (above - below) / (2.0 * static_cast<double>(distance));
      EXPECT_NEAR(gradients[input][i], expected, tolerance * std::max(1.0, std::abs(expected)))
          << "input " << input << ", element " << i;
    }
  }
}

}  // namespace ronde::trainer
