// SPDX-License-Identifier: Apache-2.0
// Uniform distributions whose width keeps the variance from layer to layer.
#include "bindings/trainer/nn/initialization.h"

#include <cmath>
#include <span>

#include "bindings/trainer/tensor/hash.h"
#include "bindings/trainer/tensor/random.h"

namespace ronde::trainer {

namespace {

// Keeps the variance of activations (He, LeCun) or of activations and gradients (Glorot).
float squared_width(Initialization initialization, std::size_t inputs, std::size_t outputs) {
  switch (initialization) {
    case Initialization::kHe:
      return 6.0F / static_cast<float>(inputs);
    case Initialization::kLecun:
      return 3.0F / static_cast<float>(inputs);
    case Initialization::kGlorot:
      break;
  }
  return 6.0F / static_cast<float>(inputs + outputs);
}

}  // namespace

void initialize(Parameter& parameter, Initialization initialization, std::size_t inputs,
                std::size_t outputs, std::uint64_t seed) {
  // A square root is exact to the bit everywhere, which the logarithms and cosines of a normal
  // distribution are not.
  const float bound = std::sqrt(squared_width(initialization, inputs, outputs));
  Hash stream;
  stream.add(std::as_bytes(std::span(parameter.name())));
  Generator generator(seed, stream.value());
  for (float& value : parameter.value()) value = generator.uniform(-bound, bound);
  parameter.changed();
}

}  // namespace ronde::trainer
