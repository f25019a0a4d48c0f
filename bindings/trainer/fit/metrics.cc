// SPDX-License-Identifier: Apache-2.0
// Sums by name, and as numbers.
#include "bindings/trainer/fit/metrics.h"

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

double Metrics::mean(const std::string& name) const {
  if (name == "loss") return loss();
  if (name == "accuracy") return accuracy();
  if (const auto found = watched.find(name); found != watched.end()) {
    return found->second.samples == 0.0 ? 0.0 : found->second.sum / found->second.samples;
  }
  std::string known = "loss, accuracy";
  for (const auto& [other, sums] : watched) known += ", " + other;
  throw TrainerError("there is no metric \"" + name + "\" here: use one of " + known +
                         ", or give it to compile(); it is there once a batch was seen",
                     kExitConfiguration);
}

std::vector<double> Metrics::numbers() const {
  std::vector<double> all{loss_sum, correct, samples};
  for (const auto& [name, sums] : watched) all.insert(all.end(), {sums.sum, sums.samples});
  return all;
}

Metrics Metrics::with(std::span<const double> numbers) const {
  Metrics other{numbers[0], numbers[1], numbers[2], watched};
  std::size_t next = 3;
  for (auto& [name, sums] : other.watched) {
    sums = {numbers[next], numbers[next + 1]};
    next += 2;
  }
  return other;
}

Metrics metrics_of(const Loss& loss) {
  const auto samples = static_cast<double>(loss.samples);
  Metrics one{loss.sum, static_cast<double>(loss.correct), samples};
  for (const auto& [name, sum] : loss.watched) one.watched[name] = {sum, samples};
  return one;
}

Metrics over_ranks(Replica& replica, const std::string& name, const Metrics& mine) {
  std::vector<double> sums = mine.numbers();
  replica.allreduce(name, sums, Reduction::kSum);
  return mine.with(sums);
}

}  // namespace ronde::trainer
