// SPDX-License-Identifier: Apache-2.0
// A whole training as its flags ask for it: progress, logs, checkpoints, early stopping, the score
// of the end, a picture, and the line of results.
#pragma once

#include <cstddef>
#include <ronde/ronde.hpp>
#include <span>
#include <string>

#include "bindings/trainer/chief/supervisor.h"
#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/loop/fit.h"
#include "bindings/trainer/loop/learner.h"
#include "bindings/trainer/loop/replica.h"
#include "bindings/trainer/nn/model.h"
#include "bindings/trainer/program/settings.h"

namespace ronde::trainer {

// What is trained, on this rank.
struct Training {
  Engine& engine;
  Replica& replica;
  Learner& learner;
  const Dataset& data;
  const Dataset& test;
  std::size_t epochs = 1;
  ScheduleOptions schedule{};  // for the logs
  std::string words{};         // "classes=0,1 ": what the line of results says after the ranks
};

// Collective: trains from where the supervisor stands to the end that the settings ask for, scores
// the model with the test data, and prints a line of results on the chief:
//
//   ranks=2 epochs=10 train_loss=... test_accuracy=... seconds=... param_hash=...
//
// Returns with what the process should end. Without a supervisor (null: a learner on a device)
// nothing is saved or logged. Throws what fit() and evaluate() throw, and AgreedError where the
// ranks end with different parameters or the picture cannot be written.
int train(const Training& training, const RunSettings& settings, Supervisor* supervisor);

// Scores the checkpoints of another process (--job evaluate), and prints how many.
int score_checkpoints(const Training& training, const RunSettings& settings, const Model& model);

// An SVG of the losses by epoch, from 1. Pure.
[[nodiscard]] std::string loss_picture(std::span<const double> losses);

}  // namespace ronde::trainer
