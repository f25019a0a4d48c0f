// SPDX-License-Identifier: Apache-2.0
// The optimiser of a job: see distributed_optimizer.h.
#include "bindings/trainer/distributed_optimizer.h"

#include <span>
#include <utility>

#include "bindings/trainer/progress.h"
#include "bindings/trainer/random.h"

namespace ronde::trainer {

DistributedOptimizer::DistributedOptimizer(Engine& engine, Model& model, Sgd& sgd,
                                           std::uint64_t shuffle_seed)
    : engine_(engine),
      model_(model),
      sgd_(sgd),
      averager_(engine, ronde::sum),
      shuffle_seed_(shuffle_seed) {
  for (Parameter* parameter : model_.parameters()) {
    ids_.push_back(averager_.add("gradient/" + parameter->name, parameter->gradient.values()));
  }
}

void DistributedOptimizer::broadcast_state(int root) {
  std::vector<Work> works;
  const std::span<Matrix> velocities = sgd_.velocities();
  for (Parameter* parameter : model_.parameters()) {
    works.push_back(
        engine_.broadcast("parameter/" + parameter->name, parameter->value.values(), root));
    if (velocities.empty()) continue;
    works.push_back(engine_.broadcast("velocity/" + parameter->name,
                                      velocities[parameter->index].values(), root));
  }
  for (Work& work : works) work.wait();
}

void DistributedOptimizer::gradient_ready(const Parameter& parameter) {
  if (shuffle_seed_ == 0) {
    averager_.ready(ids_[parameter.index]);
  } else {
    held_back_.push_back(parameter.index);
  }
}

void DistributedOptimizer::step() {
  submit_held_back();
  const double begin = steady_seconds();
  averager_.wait();
  waited_seconds_ += steady_seconds() - begin;
  sgd_.step();
  ++steps_;
}

void DistributedOptimizer::submit_held_back() {
  const auto rank = static_cast<std::uint64_t>(engine_.rank());
  Generator generator(shuffle_seed_ + rank, steps_);
  for (std::size_t left = held_back_.size(); left > 1; --left) {
    std::swap(held_back_[left - 1], held_back_[generator.below(left)]);
  }
  for (const std::size_t index : held_back_) averager_.ready(ids_[index]);
  held_back_.clear();
}

}  // namespace ronde::trainer
