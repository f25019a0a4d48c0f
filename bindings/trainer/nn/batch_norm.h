// SPDX-License-Identifier: Apache-2.0
// The layer of batch normalisation, with its running statistics.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bindings/trainer/nn/layer.h"
#include "bindings/trainer/tensor/normalization.h"
#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/tensor.h"

namespace ronde::trainer {

// Normalises each channel by the batch's mean and variance while training, and by running ones
// otherwise. Each batch moves the running ones a tenth of the way, in the forward pass; one without
// samples, or whose statistics are not finite, leaves them as they are. A step that
// Optimizer refuses puts them back on every rank.
//
// Thread safety: belongs to the thread of its model.
class BatchNorm final : public Layer {
 public:
  // Parameters are `name`/scale (ones) and `name`/shift (zeros). With `sum` the statistics are
  // those of the samples of all ranks.
  BatchNorm(std::string name, std::size_t channels, SumOverRanks sum = {});

  Tensor operator()(const Tensor& input) override;
  [[nodiscard]] std::vector<Parameter*> parameters() override { return {&scale_, &shift_}; }
  // `name`/mean and `name`/variance, which are the rank's own unless `sum` was given.
  [[nodiscard]] std::vector<StateTensor> statistics() override;

 private:
  static constexpr float kEpsilon = 1e-5F;
  static constexpr float kMomentum = 0.1F;

  void follow(const BatchNormalized& batch);

  std::string name_;
  Parameter scale_;
  Parameter shift_;
  SumOverRanks sum_;
  std::vector<float> mean_;
  std::vector<float> variance_;
};

}  // namespace ronde::trainer
