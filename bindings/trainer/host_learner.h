// SPDX-License-Identifier: Apache-2.0
// A learner in host memory: any model, over OpenBLAS.
#pragma once

#include <cstdint>
#include <ronde/ronde.hpp>
#include <string>

#include "bindings/trainer/distributed_optimizer.h"
#include "bindings/trainer/learner.h"
#include "bindings/trainer/model.h"
#include "bindings/trainer/sgd.h"

namespace ronde::trainer {

class HostLearner final : public Learner {
 public:
  // Both must outlive this object. `shuffle_seed`: see DistributedOptimizer.
  HostLearner(Engine& engine, Model& model, const SgdOptions& sgd, std::uint64_t shuffle_seed = 0);

  void broadcast_state(int root) override { optimizer_.broadcast_state(root); }
  void step(const Dataset& data, std::span<const std::uint32_t> samples,
            std::size_t global_size) override;
  [[nodiscard]] double take_loss() override;
  [[nodiscard]] std::int64_t count_correct(const Dataset& data,
                                           std::span<const std::uint32_t> samples) override;
  [[nodiscard]] std::string parameter_hash() override { return model_.parameter_hash(); }
  [[nodiscard]] double waited_seconds() const override { return optimizer_.waited_seconds(); }

 private:
  Model& model_;
  Sgd sgd_;
  DistributedOptimizer optimizer_;
  const GradientReady ready_;
  Batch batch_;
  Matrix logit_gradient_;
  double loss_sum_ = 0.0;
};

}  // namespace ronde::trainer
