// SPDX-License-Identifier: Apache-2.0
// The last line of a training: what came out, and where its time went.
#pragma once

#include <cstddef>
#include <ronde/ronde.hpp>
#include <string>

#include "bindings/trainer/loop/fit.h"

namespace ronde::examples {

// What the engine did between two readings.
[[nodiscard]] ronde_statistics difference(const ronde_statistics& after,
                                          const ronde_statistics& before);

struct TrainingResult {
  int ranks = 0;
  std::size_t epochs = 0;
  double train_loss = 0.0;
  double test_accuracy = 0.0;
  std::string parameter_hash;
  trainer::FitResult fit;
  ronde_statistics used{};
};

// "ranks=2 epochs=10 train_loss=...". Shares are of the time of rank 0: it is all computing or
// waiting; a transfer may go on beside either.
[[nodiscard]] std::string result_line(const TrainingResult& result);

}  // namespace ronde::examples
