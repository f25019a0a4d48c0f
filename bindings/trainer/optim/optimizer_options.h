// SPDX-License-Identifier: Apache-2.0
// How an optimiser steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ronde/ronde.hpp>

#include "bindings/trainer/optim/schedule.h"
#include "bindings/trainer/optim/update_rule.h"

namespace ronde::trainer {

// Where gradients lie: in memory of the process, or on the board of the host (ronde::allocator),
// where the ranks sum them without copying them first. The sums are the same.
enum class Gradients : std::uint8_t { kPlain, kBoard };

// What is averaged over the ranks: the gradients of each step, or each so many steps, and at the
// end of an epoch, the parameters, by the samples since then; in between every rank steps on its
// own (local SGD, and federated averaging), and its moments stay its own.
enum class Average : std::uint8_t { kGradients, kWeights };

// The same on all ranks, but for `overlap`, `bucket_bytes` and `shuffle_seed`.
struct OptimizerOptions {
  RuleOptions rule{};
  ScheduleOptions schedule{};
  std::uint64_t accumulate = 1;  // micro-batches of a step on each rank
  double clip_norm = 0.0;        // the largest norm of the summed gradient; 0: whatever it is
  Compression wire = Compression::kNone;
  Gradients gradients = Gradients::kBoard;
  Average average = Average::kGradients;
  std::uint64_t every = 1;  // kWeights: steps between two averages
  // Whether gradients are submitted while backward goes on; false, for comparison: in step().
  bool overlap = true;
  // Gradients are held back until so many bytes of them are ready. The default suits a host, where
  // to sum small gradients takes less time than to wake the background thread for each of them. A
  // large layer's gradient leaves at once all the same, which is what keeps the line between hosts
  // busy. Over several hosts a model of small layers alone gains from 64 to 256 KiB, which are 0.5
  // to 2 ms of a line of 1 Gbit/s; an MLP's 400 kB would leave in step() otherwise.
  std::size_t bucket_bytes = GradientAverager::kBucketBytes;
  // A test aid. Not 0: gradients are held back until the end of backward, and then submitted in an
  // order that differs per rank and step.
  std::uint64_t shuffle_seed = 0;
  // Others than its own parameters may be used: they stay as they are, and are not broadcast.
  bool part_of_model = false;
};

// The usual ones at a constant rate: what compile() and an Optimizer are given.
[[nodiscard]] inline OptimizerOptions sgd(double learning_rate, double momentum = 0.0) {
  return {.rule = {.momentum = momentum}, .schedule = {.learning_rate = learning_rate}};
}
[[nodiscard]] inline OptimizerOptions adam(double learning_rate) {
  return {.rule = {.kind = RuleOptions::Kind::kAdam}, .schedule = {.learning_rate = learning_rate}};
}
[[nodiscard]] inline OptimizerOptions adamw(double learning_rate) {
  return {.rule = {.kind = RuleOptions::Kind::kAdamW},
          .schedule = {.learning_rate = learning_rate}};
}

}  // namespace ronde::trainer
