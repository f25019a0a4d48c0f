// SPDX-License-Identifier: Apache-2.0
// Adding up metrics over the ranks.
#include "bindings/trainer/loop/metrics.h"

#include <array>

namespace ronde::trainer {

Metrics over_ranks(Replica& replica, const std::string& name, const Metrics& mine) {
  std::array<double, 3> sums{mine.loss_sum, mine.correct, mine.samples};
  replica.allreduce(name, sums, Reduction::kSum);
  return {sums[0], sums[1], sums[2]};
}

}  // namespace ronde::trainer
