// SPDX-License-Identifier: Apache-2.0
// Whether the ranks step alike.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/fit/strategy/strategy.h"
#include "bindings/trainer/optim/replicas.h"

namespace ronde::trainer {

void Optimizer::require_samples_of_all_ranks() {
  const std::array<std::uint64_t, 3> mine{samples_, global_batch_, check_every_};
  const auto all = here_.engine().allgather_blocking("optimizer/samples", mine);
  std::uint64_t samples = 0;
  std::vector<std::string> shares;
  std::vector<std::string> intervals;
  bool right = true;
  for (std::size_t at = 0; at < all.size(); at += mine.size()) samples += all[at];
  for (std::size_t at = 0; at < all.size(); at += mine.size()) {
    right = right && (all[at + 1] == 0 || all[at + 1] == (path_->by_weights() ? all[at] : samples));
    shares.push_back(std::to_string(all[at]) + " of " + std::to_string(all[at + 1]));
    intervals.push_back(std::to_string(all[at + 2]) + " steps");
  }
  if (!right) {
    throw AgreedError(
        "the " + std::to_string(shares.size()) + " ranks have taken " + std::to_string(samples) +
            " samples together in their first step, " + grouped_by_value(shares) +
            ": call Dataset::shard(rank, ranks) on each rank, and divide each loss by "
            "StepBatch::global_size",
        0, kExitConfiguration);
  }
  if (std::ranges::count(intervals, intervals.front()) == std::ssize(intervals)) return;
  throw AgreedError("the ranks are to be compared every " + grouped_by_value(intervals) +
                        ": give RONDE_CHECK to all ranks, or to none",
                    0, kExitConfiguration);
}

void Optimizer::require_same_replicas() {
  if (here_.engine().size() == 1) return;
  // Two counters, as floats by their bits, before the tensors.
  std::array<std::uint64_t, 2> counts{global_step_, rule_.steps()};
  std::array<float, 4> counters{};
  std::memcpy(counters.data(), counts.data(), sizeof counts);
  std::vector<StateTensor> tensors{{"the number of steps", {counters.size()}, counters}};
  for (const Parameter* const parameter : parameters_) {
    tensors.push_back({parameter->name(), parameter->shape(), parameter->value()});
  }
  if (!path_->is_local()) {
    for (StateTensor& one : rule_.state()) tensors.push_back(std::move(one));
  }
  for (const StateTensor& one : statistics_) {
    if (one.of_all_ranks) tensors.push_back(one);
  }
  const std::string difference = difference_of(here_.engine(), tensors);
  if (difference.empty()) return;
  throw AgreedError("the ranks differ after step " + std::to_string(global_step_) + ": " +
                        difference +
                        ": call broadcast_state() before the first step, and write into tensors on "
                        "all ranks alike; if a restart goes further, suspect a host's memory",
                    0);
}

}  // namespace ronde::trainer
