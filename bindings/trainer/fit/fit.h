// SPDX-License-Identifier: Apache-2.0
// The training loop, the evaluation of a model, and its predictions. All three are collective, and
// throw AgreedError, on every rank, where the ranks' data sets are not the parts of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/fit/callbacks.h"
#include "bindings/trainer/fit/learner.h"
#include "bindings/trainer/fit/replica.h"

namespace ronde::trainer {

struct FitOptions {
  std::size_t epochs = 1;
  // Where training goes on, if it was begun before: the epoch, the steps of it that are done, their
  // sums over all ranks, and all steps until now.
  std::size_t first_epoch = 0;
  std::size_t first_step = 0;
  Metrics first_sums{};
  std::uint64_t first_global_step = 0;
  std::size_t most_steps = 0;  // of this call; 0: as many as there are
};

struct FitResult {
  std::uint64_t steps = 0;  // of this call, as is all that follows
  std::size_t samples = 0;  // by all ranks
  Metrics training;         // of the last epoch, over all ranks
  double seconds = 0.0;
  double wait_seconds = 0.0;       // this rank stood still for sums over the ranks
  double transfer_seconds = 0.0;   // tensors were on their way, beside whatever this rank did
  double share_before_wait = 0.0;  // of the gradients' bytes: were summed before wait()
  // From the begin of each step until the first of its gradients left, added up over the steps; and
  // from the sums to the end of the step. 0 for a learner that does not measure them.
  double first_gradient_seconds = 0.0;
  double update_seconds = 0.0;
  bool cut_short = false;  // a callback has stopped it after a step: the epoch is not over
  int straggler = 0;       // the rank that waited least: the others waited for it
};

// Trains on every epoch of `data` (batched, and sharded for this rank), from the chief's state. Of
// Dataset::own() a rank without batches joins (Engine::join()) until the others have none either;
// their average is by numbers of samples, and all have the last one's state then. What is thrown
// while a rank has joined, that one learns as an Error of the engine.
// `validation` (this rank's share of it, batched) may be null; it is evaluated after each epoch.
// Throws AgreedError, on every rank, where the model does not fit the data, where it uses what it
// does not list, where a sample cannot be had, where a loss or gradient is not finite, and where no
// rank has used a parameter in the first epoch.
FitResult fit(Replica& replica, Learner& learner, const Dataset& data, const FitOptions& options,
              std::span<Callback* const> callbacks = {}, const Dataset* validation = nullptr);

// Loss and accuracy over all samples of all ranks, with the chief's running statistics. Ends after
// a batch for which `stop` returns true, which must be the same on all ranks. Throws AgreedError
// for a loss that is not a number.
[[nodiscard]] Metrics evaluate(Replica& replica, Learner& learner, const Dataset& data,
                               const std::function<bool()>& stop = {});

// Collective. Throws AgreedError where the ranks' data sets are not the parts of one.
void require_shares(Replica& replica, const Dataset& data);

// This rank's samples in the order of their numbers, whatever order they came in, and a row of
// outputs for each.
struct Predictions {
  std::vector<std::uint32_t> samples;
  std::vector<float> outputs;
};

// Rows in any order, put into that of their samples. Throws TrainerError for an output that is not
// a number.
[[nodiscard]] Predictions in_order(std::span<const std::uint32_t> samples,
                                   std::span<const float> outputs);

// With the chief's statistics. Throws AgreedError for an output that is not a number.
[[nodiscard]] Predictions predict(Replica& replica, Learner& learner, const Dataset& data);

}  // namespace ronde::trainer
