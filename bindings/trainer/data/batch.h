// SPDX-License-Identifier: Apache-2.0
// What a rank computes in one step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/shape.h"

namespace ronde::trainer {

// One micro-batch of this rank; it may have no samples. Memory is kept from step to step.
struct Batch {
  Shape shape;                             // of the inputs: {samples, ...}
  std::vector<float> inputs;               // row-major
  std::vector<std::int32_t> labels;        // a class for each sample, or none
  std::vector<float> targets;              // numbers for a regression, or none
  std::vector<std::uint32_t> samples;      // the number of each sample in the data set
  std::vector<std::uint32_t> repetitions;  // how often repeat() has given it before in this epoch

  [[nodiscard]] std::size_t size() const noexcept { return samples.size(); }
};

// The part of a global batch that this rank has: one micro-batch for each backward pass.
struct StepBatch {
  std::vector<Batch> parts;
  std::size_t global_size = 0;  // samples of the step, all ranks and micro-batches together
  std::size_t step = 0;         // from 0 in its epoch
  std::uint64_t epoch = 0;
  std::string failure;  // why this rank has no samples: see Learner::step()
};

}  // namespace ronde::trainer
