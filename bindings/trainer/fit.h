// SPDX-License-Identifier: Apache-2.0
// The training loop of a classifier, and its evaluation, on all ranks of a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ronde/ronde.hpp>

#include "bindings/trainer/dataset.h"
#include "bindings/trainer/learner.h"
#include "bindings/trainer/progress.h"

namespace ronde::trainer {

struct FitOptions {
  std::size_t epochs = 1;
  std::size_t global_batch = 1;  // samples of a step, all ranks together
  std::uint64_t seed = 0;        // of the order of the samples
};

struct FitResult {
  double train_loss = 0.0;  // mean over the samples of the last epoch, each before its step
  double seconds = 0.0;
  double wait_seconds = 0.0;      // of those, how long this rank waited for sums
  double transfer_seconds = 0.0;  // and how long a batch was under way on it
  std::uint64_t images = 0;       // seen by all ranks
  std::uint64_t steps = 0;
};

// Every rank calls it with the same data and options; afterwards the parameters are the same on all
// ranks. Throws AgreedError when the loss is no longer a number.
FitResult fit(Engine& engine, Learner& learner, const Dataset& data, const FitOptions& options,
              Progress& progress);

// The share of samples that the learner classifies correctly. Every rank looks at its part of the
// data; sums of correct answers are divided by the sum of counts, so the parts may differ in size.
double evaluate(Engine& engine, Learner& learner, const Dataset& data);

}  // namespace ronde::trainer
