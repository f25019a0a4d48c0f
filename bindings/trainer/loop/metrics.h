// SPDX-License-Identifier: Apache-2.0
// Sums and counts, from which means are made once all ranks' are together.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "bindings/trainer/loop/replica.h"

namespace ronde::trainer {

struct Metrics {
  double loss_sum = 0.0;
  double correct = 0.0;
  double samples = 0.0;

  void add(const Metrics& more) {
    loss_sum += more.loss_sum;
    correct += more.correct;
    samples += more.samples;
  }
  void add(double loss, std::size_t right, std::size_t count) {
    loss_sum += loss;
    correct += static_cast<double>(right);
    samples += static_cast<double>(count);
  }
  friend bool operator==(const Metrics&, const Metrics&) = default;

  // Means over the samples; 0 where there are none.
  [[nodiscard]] double loss() const { return samples == 0.0 ? 0.0 : loss_sum / samples; }
  [[nodiscard]] double accuracy() const { return samples == 0.0 ? 0.0 : correct / samples; }
};

// Collective: the sums over all ranks.
[[nodiscard]] inline Metrics over_ranks(Replica& replica, const std::string& name,
                                        const Metrics& mine) {
  std::array<double, 3> sums{mine.loss_sum, mine.correct, mine.samples};
  replica.allreduce(name, sums, Reduction::kSum);
  return {sums[0], sums[1], sums[2]};
}

}  // namespace ronde::trainer
