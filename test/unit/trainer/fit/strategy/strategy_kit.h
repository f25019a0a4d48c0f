// SPDX-License-Identifier: Apache-2.0
// A small training that runs under any strategy.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/strategies.h"
#include "bindings/trainer/nn/models.h"
#include "bindings/trainer/tensor/operations.h"
#include "test/unit/trainer/data/toy_data.h"

namespace ronde::trainer {

using StrategyMaker = std::function<std::unique_ptr<Strategy>()>;

struct NamedStrategy {
  std::string name;
  StrategyMaker make;
};

// Every kind that trains, in this process.
inline std::vector<NamedStrategy> every_strategy() {
  return {
      {"Default", [] { return std::make_unique<Default>(); }},
      {"OneDevice", [] { return std::make_unique<OneDevice>("/cpu:0"); }},
      {"Mirrored", [] { return std::make_unique<Mirrored>(2); }},
      {"MultiWorkerMirrored",
       [] {
         return std::make_unique<MultiWorkerMirrored>(
             MultiWorkerOptions{.say = [](const std::string&) {}});
       }},
      {"CentralStorage", [] { return std::make_unique<CentralStorage>(3); }},
  };
}

inline std::unique_ptr<Layers> toy_network() { return make_mlp(kFeatures, 12, kClasses, 5); }

inline Dataset toy_batches(std::size_t samples = 205, std::size_t batch = 10) {
  return Dataset::from_images(toy_data(samples, 1), ImageShape::kFlat).shuffle(7).batch(batch);
}

inline const OptimizerOptions kPlainOptions = sgd(0.05);
inline const OptimizerOptions kToyOptions = sgd(0.05, 0.9);

// One step of a loop of the program's own; returns the loss of this replica's samples.
inline double toy_step(Replica& here, const Model& model, Optimizer& sgd, const Part& mine) {
  const Loss loss = softmax_cross_entropy(model(mine.inputs), mine.labels);
  sgd.minimize(here, loss);
  return loss.sum;
}

// The program's own loop over an epoch; returns the loss of all samples of all replicas.
inline double toy_loop(Strategy& strategy, const Model& model, Optimizer& sgd,
                       DistributedEpoch steps) {
  double sum = 0.0;
  for (const DistributedBatch& batch : steps) {
    const PerReplica<double> losses = strategy.run(
        [&](Replica& here, const Part& mine) { return toy_step(here, model, sgd, mine); }, batch);
    sum += strategy.reduce(ReduceOp::kSum, losses);
  }
  return sum;
}

}  // namespace ronde::trainer
