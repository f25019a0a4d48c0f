// SPDX-License-Identifier: Apache-2.0
// The loss of a classifier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings/trainer/tensor.h"

namespace ronde::trainer {

// Sums over samples, never means: sums of ranks can be added.
struct LossSums {
  double loss = 0.0;
  std::int64_t correct = 0;
};

// Softmax and cross-entropy of one row of logits per sample. With `gradient` also the gradient of
// (sum of losses / global_batch) by the logits: every rank divides by the number of samples that
// all ranks have together, so that the sum over ranks is the gradient of the mean, however the
// batch is spread. In double inside: the same sum of losses for every spread, but for the last
// bits.
LossSums softmax_cross_entropy(const Matrix& logits, std::span<const std::uint8_t> labels,
                               std::size_t global_batch, Matrix* gradient);

}  // namespace ronde::trainer
