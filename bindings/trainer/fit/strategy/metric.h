// SPDX-License-Identifier: Apache-2.0
// What a training minimises, and what it watches beside.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bindings/trainer/data/batch.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/tensor.h"

namespace ronde::trainer {

// The loss of a model's outputs for a batch; losses.h has some.
using LossFunction = std::function<Loss(const Tensor& outputs, const Batch& batch)>;

// softmax_cross_entropy() and binary_cross_entropy() of the labels, mean_squared_error() of the
// targets.
Loss classification_loss(const Tensor& outputs, const Batch& batch);
Loss two_classes_loss(const Tensor& outputs, const Batch& batch);
Loss regression_loss(const Tensor& outputs, const Batch& batch);

// A number for each sample, whose mean over all of them fit() and evaluate() give by its name.
//
//   model.compile(sgd(0.1), classification_loss, {"accuracy", "top_3_accuracy", {"confident",
//   own}}); model.evaluate(data).mean("top_3_accuracy")
class Metric {
 public:
  // Over the samples of a batch, which may have none; called by several threads at a time.
  using Sum = std::function<double(const Tensor& outputs, const Batch& batch)>;

  // "accuracy" (what the loss counts as right: always there), "top_N_accuracy" (the label is among
  // the N largest outputs), "mean_absolute_error" (of the targets). Throws TrainerError for another
  // one.
  Metric(const char* name);  // NOLINT(google-explicit-constructor): a list of names, as in guides
  // Throws TrainerError for a name that is taken, or no function.
  Metric(std::string name, Sum sum);

 private:
  friend LossFunction watching(LossFunction loss, const std::vector<Metric>& metrics);
  std::string name_;
  Sum sum_;  // none for what a loss counts itself
};

// The loss, which sums up the metrics, too. Throws TrainerError for a name that is there twice.
[[nodiscard]] LossFunction watching(LossFunction loss, const std::vector<Metric>& metrics);

}  // namespace ronde::trainer
