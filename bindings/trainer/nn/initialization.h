// SPDX-License-Identifier: Apache-2.0
// The first values of weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bindings/trainer/tensor/parameter.h"

namespace ronde::trainer {

enum class Initialization {
  kHe,     // for a layer that a ReLU follows
  kLecun,  // for one that a ReLU and a max-pool follow, which double the mean square between them
  kGlorot  // for the last layer
};

// Draws the values from `seed` and the parameter's name, so that a layer's start does not depend on
// its neighbours. `inputs` and `outputs` are how many numbers one output is made of, and one input
// goes into.
void initialize(Parameter& parameter, Initialization initialization, std::size_t inputs,
                std::size_t outputs, std::uint64_t seed);

}  // namespace ronde::trainer
