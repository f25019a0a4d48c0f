// SPDX-License-Identifier: Apache-2.0
// The learning rate of each step. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace ronde::trainer {

// Warm-up comes first: over `warmup` steps the rate rises in a straight line, to all of it in the
// last of them. The schedule counts from the end of the warm-up, and `total` from step 0.
struct ScheduleOptions {
  enum class Kind : std::uint8_t {
    kConstant,
    kStep,    // multiplied by `factor` after every `every` steps
    kCosine,  // falls along half a cosine, to 0 in step `total`
    kLinear   // falls in a straight line, to 0 in step `total`
  };

  Kind kind = Kind::kConstant;
  double learning_rate = 0.01;
  std::uint64_t warmup = 0;
  std::uint64_t every = 0;  // for kStep
  double factor = 0.1;      // for kStep
  std::uint64_t total = 0;  // for kCosine and kLinear
};

// The learning rate of a global step, which counts from 0. Throws TrainerError for options that
// make no sense, in one line.
[[nodiscard]] double learning_rate(const ScheduleOptions& options, std::uint64_t step);

// The rate that a table has for this global batch, such as {{64, 0.01}, {128, 0.02}}. Throws
// TrainerError where it has none.
[[nodiscard]] double learning_rate_for(std::size_t global_batch,
                                       const std::map<std::size_t, double>& rates);

// The schedule in words. Two of them are the same if they give each step the same rate.
[[nodiscard]] std::string text_of(const ScheduleOptions& options);

}  // namespace ronde::trainer
