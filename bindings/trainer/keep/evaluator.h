// SPDX-License-Identifier: Apache-2.0
// A process beside a training that evaluates each of its checkpoints; it is no rank of the job.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bindings/trainer/fit/callbacks.h"
#include "bindings/trainer/fit/metrics.h"
#include "bindings/trainer/keep/file_system.h"
#include "bindings/trainer/tensor/parameter.h"

namespace ronde::trainer {

struct EvaluatorOptions {
  std::string directory;       // of the checkpoints; need not exist yet
  double idle_seconds = 60.0;  // without a new checkpoint or a heartbeat of a training
  PrintLine say{};
  FileSystem* files = &disk();  // of the checkpoints; it also sleeps between two polls
};

// Loads each checkpoint, as it appears, into `tensors` (parameters and statistics; the moments are
// left out), and calls `score`. Writes "evaluation/loss" and "evaluation/accuracy" as event files
// and metrics.jsonl in <directory>/eval. Ends after the last checkpoint of a training that has
// finished, or after `idle_seconds`, and prints which. A damaged one is skipped with a warning.
// Steps that an earlier evaluator has scored are not scored again. Returns how many were scored.
// Throws TrainerError for a checkpoint of another model, and where another evaluator is running.
std::size_t evaluate_checkpoints(const EvaluatorOptions& options,
                                 const std::vector<StateTensor>& tensors,
                                 const std::function<Metrics()>& score);

}  // namespace ronde::trainer
