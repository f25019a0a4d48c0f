// SPDX-License-Identifier: Apache-2.0
// The steps of an optimiser whose variables live on servers.
#include <cstdint>
#include <vector>

#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/optim/clipping.h"
#include "bindings/trainer/optim/replicas.h"

namespace ronde::trainer {

void Optimizer::take_served() {
  path_->pull();
  is_served_ = true;
  global_step_ = path_->global_step();
  rule_->set_steps(global_step_);
  keep_statistics();
}

// A loop of the program's own has computed its first gradients from what it began with: they count
// where that is what the servers have.
StepResult Optimizer::push_and_pull() {
  GradientPath& servers = *path_;
  StepResult result;
  result.norm = finite_norm();
  double samples = static_cast<double>(samples_);
  if (!is_served_) {
    std::vector<std::uint64_t> before;
    before.reserve(parameters_.size());
    for (const Parameter* const one : parameters_) before.push_back(hash_of(one->value()));
    take_served();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (hash_of(parameters_[i]->value()) != before[i]) samples = 0.0;
    }
  }
  // Rounds are clipped by the servers, which alone know their average.
  if (!servers.in_rounds() && options_.clip_norm > 0.0 && result.norm > options_.clip_norm) {
    scale_gradients(clipping_factor(options_.clip_norm, result.norm));
  }
  result.learning_rate = learning_rate_now();
  servers.push(samples, result.learning_rate);
  take_served();
  return result;
}

}  // namespace ronde::trainer
