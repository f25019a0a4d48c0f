// SPDX-License-Identifier: Apache-2.0
// Losses: what a model is trained to make small.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ranges>
#include <span>
#include <string>

#include "bindings/trainer/tensor/tensor.h"

namespace ronde::trainer {

// A class for each sample, in a contiguous range of any integer type, which must outlive this.
class Labels {
 public:
  Labels() = default;  // none
  template <std::ranges::contiguous_range R>
    requires std::integral<std::ranges::range_value_t<R>>
  Labels(const R& labels)  // NOLINT(google-explicit-constructor): any range of labels is Labels
      : data_(std::ranges::data(labels)),
        size_(std::ranges::size(labels)),
        at_([](const void* data, std::size_t i) {
          return static_cast<std::int64_t>(
              static_cast<const std::ranges::range_value_t<R>*>(data)[i]);
        }) {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::int64_t operator[](std::size_t i) const { return at_(data_, i); }

 private:
  const void* data_ = nullptr;
  std::size_t size_ = 0;
  std::int64_t (*at_)(const void* data, std::size_t i) = nullptr;
};

// The loss of the samples that this rank has in a micro-batch. It holds sums and counts, never
// means: they are added up over ranks and batches before anything is divided, so that a mean over
// all samples is exact.
struct Loss {
  Tensor value;      // sum / global_batch, one element: what backward() starts from (0: the sum)
  double sum = 0.0;  // over the samples
  // Samples that are classified correctly, none with an output that is NaN; 0 for a regression.
  std::size_t correct = 0;
  std::size_t samples = 0;
  std::size_t global_batch = 0;  // what the sum was divided by; 0: nobody says
  // What else to watch, by name: sums over the samples. The same names on all ranks.
  std::map<std::string, double> watched{};
};

// What a sum is divided by is what the step says (Pass::global_batch), unless another number is
// given here: all samples that the gradient is a mean over, of all ranks and micro-batches.

// {samples, classes} against a class for each sample.
Loss softmax_cross_entropy(const Tensor& logits, const Labels& labels,
                           std::size_t global_batch = 0);
// {samples} or {samples, 1} against 0 or 1 for each sample; correct: the logit's sign says so.
Loss binary_cross_entropy(const Tensor& logits, const Labels& labels, std::size_t global_batch = 0);
// {samples, ...} against as many targets; the sum is over samples of the mean over their elements.
Loss mean_squared_error(const Tensor& prediction, std::span<const float> targets,
                        std::size_t global_batch = 0);

}  // namespace ronde::trainer
