// SPDX-License-Identifier: Apache-2.0
// What a training watches beside its loss.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bindings/trainer/fit/host_learner.h"

namespace ronde::trainer {

// A number for each sample, whose mean over all of them fit() and evaluate() give by its name.
//
//   model.compile(sgd, classification_loss, {"accuracy", "top_3_accuracy", {"confident", own}});
//   model.evaluate(data).mean("top_3_accuracy")
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
