// SPDX-License-Identifier: Apache-2.0
// Batch normalisation of tensors: with the statistics of the batch, of the batch of all ranks, or
// with given ones.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "bindings/trainer/tensor/tensor.h"
#include "bindings/trainer/tensor/values.h"

namespace ronde::trainer {

// Adds up these numbers over all ranks, in place. Every rank calls it at the same points with as
// many numbers: it runs every forward and backward pass, also without samples. In double precision,
// so that the statistics, once they are rounded, hardly ever depend on how the samples are spread
// over the ranks.
using SumOverRanks = std::function<void(std::span<double>)>;

struct BatchNormalized {
  Tensor output;
  Values mean;      // of the batch, by channel
  Values variance;  // of the batch, by channel: the mean square distance from the mean
  // What a mean was taken over: samples * height * width, of all ranks where they are synchronised.
  double count = 0.0;
};

// `input` is {samples, channels, height, width} or {samples, channels}; `scale` and `shift` are
// {channels}. Each channel gets the mean `shift` and the deviation `scale`. An empty batch has
// zeros for statistics. Throws TrainerError where a mean would be taken over one number, as in a
// {1, channels}: torch.nn.BatchNorm1d does, too.
BatchNormalized batch_norm(const Tensor& input, const Tensor& scale, const Tensor& shift,
                           float epsilon);
// The same over the samples of all ranks. A rank without samples takes part. Calls `sum` twice, and
// once in backward, if the gradient by the input is wanted; gradients by scale and shift stay those
// of this rank's samples, to be averaged as those of other parameters.
BatchNormalized batch_norm_over_ranks(const Tensor& input, const Tensor& scale, const Tensor& shift,
                                      float epsilon, const SumOverRanks& sum);
// With a mean and a variance that are given, {channels} each.
Tensor batch_norm_as_given(const Tensor& input, const Tensor& scale, const Tensor& shift,
                           float epsilon, std::span<const float> mean,
                           std::span<const float> variance);

}  // namespace ronde::trainer
