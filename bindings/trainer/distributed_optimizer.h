// SPDX-License-Identifier: Apache-2.0
// Makes an optimiser of one process an optimiser of a job: the gradients of all ranks are summed on
// the way. This is all a trainer needs of Ronde, besides the broadcast at the start.
#pragma once

#include <cstdint>
#include <ronde/ronde.hpp>
#include <vector>

#include "bindings/trainer/model.h"
#include "bindings/trainer/sgd.h"

namespace ronde::trainer {

// A rank's gradient is a sum over its samples divided by the global batch (see loss.h), so ranks
// are summed, not averaged.
//
// If a step is abandoned (an exception between gradient_ready() and step()), gradients may still be
// on their way: declare the model before the engine, so that the engine is closed first.
//
// Thread safety: belongs to the thread of its model.
class DistributedOptimizer {
 public:
  // All of them must outlive this object. A `shuffle_seed` other than 0 is a test aid: gradients
  // are held back until the end of backward and then submitted in an order that differs per rank
  // and step.
  DistributedOptimizer(Engine& engine, Model& model, Sgd& sgd, std::uint64_t shuffle_seed = 0);
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  // Every rank gets the parameters and the velocities of `root`.
  void broadcast_state(int root = 0);

  // From backward: the gradient is complete on this rank, its sum over the ranks may begin.
  void gradient_ready(const Parameter& parameter);
  // Waits for the sums and updates the parameters, with the same result on every rank.
  void step();
  // How long this rank has waited for sums since it was made.
  [[nodiscard]] double waited_seconds() const { return waited_seconds_; }

 private:
  void submit_held_back();

  Engine& engine_;
  Model& model_;
  Sgd& sgd_;
  GradientAverager averager_;
  std::vector<GradientAverager::Id> ids_;  // by Parameter::index
  std::uint64_t shuffle_seed_;
  std::uint64_t steps_ = 0;
  double waited_seconds_ = 0.0;
  std::vector<std::size_t> held_back_;  // indices of parameters
};

}  // namespace ronde::trainer
