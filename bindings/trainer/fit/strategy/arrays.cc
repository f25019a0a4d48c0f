// SPDX-License-Identifier: Apache-2.0
// A model with arrays for data.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/optim/replicas.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

// Without the side of the samples.
Shape shape_of_one(const Array& inputs) {
  if (!inputs.shape.empty()) return {inputs.shape.begin() + 1, inputs.shape.end()};
  throw TrainerError("an array of inputs has no side of samples: give it the shape {samples, ...}",
                     kExitConfiguration);
}

}  // namespace

Predictions Model::predict(const Array& inputs, std::size_t batch) {
  const std::size_t samples = inputs.shape.empty() ? 0 : inputs.shape.front();
  return predict(batches_of(inputs, std::vector<float>(samples), batch));
}

// Processes with other arrays would each learn a part of their own ones.
void Model::require_same(const Array& inputs, const std::vector<float>& answers) {
  if (strategy_.is_served()) {
    // Each by itself: of an autoencoder both are the same.
    learner().path().alike("inputs", std::to_string(hash_of(inputs.values)));
    learner().path().alike("answers", std::to_string(hash_of(answers)));
  }
  if (strategy_.processes() == 1) return;
  const std::vector<std::uint64_t> mine{hash_of(inputs.values), hash_of(answers)};
  const auto all = strategy_.over_processes("arrays", mine);
  for (std::size_t i = 2; i < all.size(); ++i) {
    if (all[i] == all[i % 2]) continue;
    throw AgreedError(std::string("the ") + (i % 2 == 0 ? "inputs" : "answers") + " of process " +
                          std::to_string(i / 2) + " are others than those of process 0: give " +
                          "each process the whole, or its own part by distribute_from()",
                      0, kExitConfiguration);
  }
}

Dataset Model::batches_of(const Array& inputs, const std::vector<std::int64_t>& labels,
                          std::size_t batch) {
  require_same(inputs, {labels.begin(), labels.end()});
  const std::int64_t most =
      labels.empty() ? 0 : std::max<std::int64_t>(0, std::ranges::max(labels));
  return Dataset::from_arrays(shape_of_one(inputs), inputs.values, labels,
                              static_cast<std::size_t>(most) + 1)
      .batch(batch);
}

Dataset Model::batches_of(const Array& inputs, const std::vector<float>& targets,
                          std::size_t batch) {
  require_same(inputs, targets);
  const Shape one = shape_of_one(inputs);
  const std::size_t samples = std::max<std::size_t>(1, inputs.shape.front());
  if (targets.size() % samples != 0) {
    throw TrainerError("there are " + std::to_string(targets.size()) + " numbers to predict for " +
                           std::to_string(samples) + " samples: give as many for each",
                       kExitConfiguration);
  }
  return Dataset::from_arrays(one, inputs.values, targets, targets.size() / samples).batch(batch);
}

}  // namespace ronde::trainer
