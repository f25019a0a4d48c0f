// SPDX-License-Identifier: Apache-2.0
// A whole training as its flags ask for it: progress, logs, checkpoints, early stopping, the score
// of the end, a picture, and the line of results.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/fit/callbacks.h"
#include "bindings/trainer/fit/learner.h"
#include "bindings/trainer/fit/program/settings.h"
#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/strategy.h"

namespace ronde::trainer {

struct Training {
  const Dataset& data;  // in batches of all replicas, not cut between them
  const Dataset& test;
  std::size_t epochs = 1;
  Flags same{};         // what one that goes on must have in common, besides the data
  std::string words{};  // "classes=0,1 ": what the line of results says after the ranks
  Watched watch{};      // numbers that each line has
  std::string loss_name = "train/loss";  // of a step's loss in the logs
};

// Collective: trains a compiled model to the end that the settings ask for, from where it stands
// in their logdir, scores it with the test data, and prints a line of results on the chief:
//
//   ranks=2 epochs=10 train_loss=... test_accuracy=... seconds=... param_hash=...
//
// --job evaluate scores the checkpoints of another process instead, and prints how many. Returns
// with what the process should end. Throws what fit() and evaluate() throw, and AgreedError where
// the ranks end with different parameters or the picture cannot be written.
int train(Model& model, const Training& training, const RunSettings& settings);
// The same for a learner of the program's own, in a step of a strategy: nothing is saved or logged.
int train(Replica& here, Learner& learner, const Training& training, const RunSettings& settings);

// An SVG of the losses by epoch, from 1. Pure.
[[nodiscard]] std::string loss_picture(std::span<const double> losses);

}  // namespace ronde::trainer
