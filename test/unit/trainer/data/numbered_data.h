// SPDX-License-Identifier: Apache-2.0
// Data sets whose samples say which they are, and what came out of their epochs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "bindings/trainer/data/dataset.h"

namespace ronde::trainer {

// Sample i has the input {i, 100 + i}, and i for a target.
inline Dataset numbered(std::size_t samples) {
  std::vector<float> inputs;
  std::vector<float> targets;
  for (std::size_t i = 0; i < samples; ++i) {
    inputs.push_back(static_cast<float>(i));
    inputs.push_back(100.0F + static_cast<float>(i));
    targets.push_back(static_cast<float>(i));
  }
  return Dataset::from_arrays({2}, std::move(inputs), std::move(targets));
}

// The same from a generator that does not say how many it has.
inline Dataset numbered_stream(std::size_t samples) {
  const SampleFormat format{.shape = {2}, .classes = 0, .targets = 1};
  return Dataset::from_generator(
      format, [samples](std::uint64_t /*epoch*/, std::size_t index, const SampleRoom& room) {
        if (index >= samples) return false;
        room.input[0] = static_cast<float>(index);
        room.input[1] = 100.0F + static_cast<float>(index);
        room.targets[0] = static_cast<float>(index);
        return true;
      });
}

using Samples = std::vector<std::uint32_t>;

// The samples of each step of an epoch that one rank has, part by part.
inline std::vector<std::vector<Samples>> parts_of(const Dataset& data, std::uint64_t epoch,
                                                  std::size_t first_step = 0) {
  std::vector<std::vector<Samples>> steps;
  Epoch batches = data.epoch(epoch, first_step);
  while (const StepBatch* step = batches.next()) {
    std::vector<Samples>& parts = steps.emplace_back();
    for (const Batch& part : step->parts) parts.push_back(part.samples);
  }
  return steps;
}

// All samples of an epoch, in order.
inline Samples samples_of(const Dataset& data, std::uint64_t epoch, std::size_t first_step = 0) {
  Samples all;
  for (const std::vector<Samples>& step : parts_of(data, epoch, first_step)) {
    for (const Samples& part : step) all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

inline Samples up_to(std::uint32_t count) {
  Samples samples(count);
  std::iota(samples.begin(), samples.end(), 0U);
  return samples;
}

}  // namespace ronde::trainer
