// SPDX-License-Identifier: Apache-2.0
// Choosing the statistics, and following them.
#include "bindings/trainer/nn/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

BatchNorm::BatchNorm(std::string name, std::size_t channels, SumOverRanks sum)
    : name_(std::move(name)),
      scale_(name_ + "/scale", {channels}),
      shift_(name_ + "/shift", {channels}),
      sum_(std::move(sum)),
      mean_(channels, 0.0F),
      variance_(channels, 1.0F) {
  std::ranges::fill(scale_.value(), 1.0F);
}

Tensor BatchNorm::operator()(const Tensor& input) {
  Tape& tape = input.tape();
  const Tensor scale = tape.use(scale_);
  const Tensor shift = tape.use(shift_);
  for (const StateTensor& one : statistics()) tape.use_statistics(one);
  if (!tape.pass().training) {
    return batch_norm_as_given(input, scale, shift, kEpsilon, mean_, variance_);
  }
  BatchNormalized batch = sum_ ? batch_norm_over_ranks(input, scale, shift, kEpsilon, sum_)
                               : batch_norm(input, scale, shift, kEpsilon);
  follow(batch);
  return std::move(batch.output);
}

std::vector<StateTensor> BatchNorm::statistics() {
  const bool of_all = static_cast<bool>(sum_);
  return {{name_ + "/mean", {mean_.size()}, mean_, of_all},
          {name_ + "/variance", {variance_.size()}, variance_, of_all}};
}

void BatchNorm::follow(const BatchNormalized& batch) {
  const auto is_finite = [](float value) { return std::isfinite(value); };
  if (batch.count == 0.0 || !std::ranges::all_of(batch.mean.plain(), is_finite) ||
      !std::ranges::all_of(batch.variance.plain(), is_finite)) {
    return;
  }
  // A sample's mean lies nearer to the sample than the true one: n / (n - 1) makes up for it.
  const auto correction = static_cast<float>(batch.count / (batch.count - 1.0));
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    mean_[i] += kMomentum * (batch.mean.data()[i] - mean_[i]);
    variance_[i] += kMomentum * (correction * batch.variance.data()[i] - variance_[i]);
  }
}

}  // namespace ronde::trainer
