// SPDX-License-Identifier: Apache-2.0
// A learner in host memory: any model, over the tape.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bindings/trainer/fit/learner.h"
#include "bindings/trainer/nn/model.h"
#include "bindings/trainer/optim/distributed_optimizer.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

// The loss of a model's outputs for a batch; losses.h has some.
using LossFunction =
    std::function<Loss(const Tensor& outputs, const Batch& batch, std::size_t global_batch)>;

// softmax_cross_entropy() and binary_cross_entropy() of the labels, mean_squared_error() of the
// targets.
Loss classification_loss(const Tensor& outputs, const Batch& batch, std::size_t global_batch);
Loss two_classes_loss(const Tensor& outputs, const Batch& batch, std::size_t global_batch);
Loss regression_loss(const Tensor& outputs, const Batch& batch, std::size_t global_batch);

class HostLearner final : public Learner {
 public:
  // The model and the optimiser must outlive this object. `seed` is what dropout is drawn from.
  HostLearner(Model model, LossFunction loss, DistributedOptimizer& optimizer, std::uint64_t seed,
              int threads = 1);

  void broadcast_state(int root) override { optimizer_.broadcast_state(root); }
  void broadcast_statistics(int root) override { optimizer_.broadcast_statistics(root); }
  void try_shapes(const Batch& batch) override;
  void step(const StepBatch& batch, std::uint64_t epoch) override;
  [[nodiscard]] Metrics take_metrics() override;
  [[nodiscard]] Metrics metrics() const override { return metrics_; }
  [[nodiscard]] Metrics last_step() const override { return last_step_; }
  [[nodiscard]] Metrics evaluate(const Batch& batch) override;
  [[nodiscard]] std::vector<float> predict(const Batch& batch) override;
  [[nodiscard]] std::string parameter_hash() override { return model_.parameter_hash(); }
  [[nodiscard]] std::vector<std::string> unused() const override;
  [[nodiscard]] LearnerTimes times() const override;
  [[nodiscard]] ServedPath* served() const override { return optimizer_.options().served; }

 private:
  void take_step(const StepBatch& batch, std::uint64_t epoch);
  Tensor outputs(const Batch& batch, bool training, std::uint64_t epoch);

  Model model_;
  LossFunction loss_;
  DistributedOptimizer& optimizer_;
  const std::uint64_t seed_;
  Tape tape_;
  Metrics metrics_;
  Metrics last_step_;
};

}  // namespace ronde::trainer
