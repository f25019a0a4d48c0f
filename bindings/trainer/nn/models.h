// SPDX-License-Identifier: Apache-2.0
// The models of the examples. The same seed makes the same first weights on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bindings/trainer/nn/batch_norm.h"
#include "bindings/trainer/nn/layer.h"

namespace ronde::trainer {

// Multilayer perceptron with one hidden layer: "fc1", ReLU, "fc2", over {samples, inputs}.
[[nodiscard]] std::unique_ptr<Layers> make_mlp(std::size_t inputs, std::size_t hidden,
                                               std::size_t classes, std::uint64_t seed);

struct CnnOptions {
  std::size_t classes = 10;
  bool batch_norm = false;  // between each convolution and its ReLU
  // Empty: batch normalisation sees this rank's samples alone. Otherwise every rank runs every
  // forward and backward pass, also without samples.
  SumOverRanks sum_over_ranks{};
};

// Over {samples, 1, 28, 28}: 3x3 convolutions of 32, 64 and 128 channels with ReLU, the first two
// followed by a 2x2 max-pool, then "fc1" of 320 with ReLU and "fc2": 2.1 million parameters, 8 MiB
// of gradients, 10 tensors.
[[nodiscard]] std::unique_ptr<Layers> make_cnn(const CnnOptions& options, std::uint64_t seed);

}  // namespace ronde::trainer
