// SPDX-License-Identifier: Apache-2.0
// The flags of a training job that say how it steps: optimiser, schedule, accumulation, the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bindings/trainer/optim/distributed_optimizer.h"
#include "bindings/trainer/optim/optimizer.h"
#include "examples/support/command_line.h"

namespace ronde::examples {

// What a model is trained well with: used where a flag says "auto".
struct TrainingDefaults {
  double sgd_rate = 0.02;
  double adam_rate = 0.001;
  std::string schedule = "constant";
  std::size_t epochs = 10;
};

struct TrainingSettings {
  std::size_t epochs = 0;
  std::size_t global_batch = 0;
  std::uint64_t seed = 0;
  int threads = 1;
  trainer::OptimizerOptions optimizer;
  trainer::DistributedOptions distributed;  // schedule.total: see finish_schedule()
};

void add_training_flags(CommandLine& line);

// Throws UsageError.
[[nodiscard]] TrainingSettings read_training_flags(const CommandLine& line,
                                                   const TrainingDefaults& defaults);

// Counts the schedule in steps, once it is known how many an epoch has. Throws AgreedError, on
// every rank, for a warm-up that never ends.
void finish_schedule(TrainingSettings& settings, std::size_t steps_per_epoch);

// What is wrong with a global batch in which some rank or micro-batch would never have a sample: it
// must be at least ranks x accumulate. Empty: nothing.
[[nodiscard]] std::string too_small_batch(const TrainingSettings& settings, int ranks);

}  // namespace ronde::examples
