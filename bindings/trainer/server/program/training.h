// SPDX-License-Identifier: Apache-2.0
// A whole training on servers, whatever task this is: workers pull, compute and push; servers
// serve; a chief may send the batches; an evaluator looks at what is learned.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/chief/supervisor.h"
#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/loop/host_learner.h"
#include "bindings/trainer/nn/model.h"
#include "bindings/trainer/optim/optimizer.h"
#include "bindings/trainer/optim/schedule.h"
#include "bindings/trainer/server/program/settings.h"

namespace ronde::trainer::server {

// What is trained on, and how long.
struct ServerData {
  Dataset data;         // in batches of all workers, not cut between them
  Dataset test;         // in batches
  std::uint64_t steps;  // that the servers take: rounds in sync, and otherwise pushes
  ScheduleOptions schedule;
  Flags same{};  // what one that goes on must have in common, besides optimiser and schedule
};

struct ServerTraining {
  Model model;
  LossFunction loss;
  OptimizerOptions optimizer{};
  SupervisorOptions chief{};      // logdir, save_steps, keep, restore and accept_changes count
  std::uint64_t seed = 1;         // that dropout is drawn from
  std::uint64_t print_every = 0;  // steps; 0: nothing is printed while it trains
  // Numbers that each line has, by name, such as a parameter's.
  std::vector<std::pair<std::string, const float*>> watch{};
  // Called where this task reads data, once it is known how many workers there are and how many
  // steps a batch of all of them is.
  std::function<ServerData(std::size_t workers, std::uint64_t steps_per_batch)> data{};
};

// Runs this task until the training has ended, and returns with what the process should end. The
// chief prints a line of results at the end:
//
//   mode=async workers=2 servers=1 global_step=... pushes=... ... test_accuracy=... param_hash=...
//
// Throws TrainerError, with a line, for settings that cannot be, and what ParameterServer throws.
int train_on_servers(const ServerSettings& settings, const ServerTraining& training);

}  // namespace ronde::trainer::server
