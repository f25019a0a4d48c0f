// SPDX-License-Identifier: Apache-2.0
// What the user of a training program decides by flags: how it runs, and how it steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "bindings/trainer/fit/program/flags.h"
#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/keep/supervisor.h"
#include "bindings/trainer/optim/update_rule.h"

namespace ronde::trainer {

// How a training runs: what it begins with, when it ends, what its chief saves and writes.
struct RunSettings {
  std::uint64_t seed = 1;
  std::size_t steps = 0;           // since the very first start; 0: as many as there are
  SupervisorOptions supervisor{};  // without flags
  bool stop_early = false;
  std::uint64_t patience = 3;  // epochs, where it stops early
  std::uint64_t log_every = 0;
  bool verbose = false;
  std::string plot{};      // a picture of the losses; empty: none
  bool evaluates = false;  // scores the checkpoints of another process, and trains nothing
  double idle_seconds = 60.0;
  Flags all_flags{};
};

// What a model is trained well with: used where a flag says "auto".
struct TrainingDefaults {
  double sgd_rate = 0.02;
  double adam_rate = 0.001;
  ScheduleOptions::Kind schedule = ScheduleOptions::Kind::kConstant;
  std::size_t epochs = 10;
};

// How a training steps.
struct StepSettings {
  std::size_t epochs = 0;
  std::size_t global_batch = 128;
  OptimizerOptions optimizer{.rule = {.momentum = 0.9}};  // schedule.total: see finish_schedule()
};

// The settings must outlive the table, and have their values when it has been parsed.

// What the chief saves and when, for a program with a loop of its own; add_run_flags() has these.
void add_supervisor_flags(FlagTable& table, SupervisorOptions& chief);
void add_run_flags(FlagTable& table, RunSettings& settings);
// `defaults` is called when all flags of these and earlier rows are read.
void add_step_flags(FlagTable& table, StepSettings& settings,
                    std::function<TrainingDefaults()> defaults);

// Counts the schedule in steps, once it is known how many an epoch has. Throws AgreedError, on
// every rank, for a warm-up that never ends.
void finish_schedule(StepSettings& settings, std::size_t steps_per_epoch);
// Throws AgreedError, on every rank, for a global batch in which some rank or micro-batch would
// never have a sample, or which is larger than the training data.
void require_batch(const StepSettings& settings, std::size_t replicas, std::size_t samples);

}  // namespace ronde::trainer
