// SPDX-License-Identifier: Apache-2.0
// Sums by name, and as numbers.
#include "bindings/trainer/fit/metrics.h"

#include <algorithm>
#include <array>
#include <utility>

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

double area_under_curve(std::span<const float> scores, std::span<const std::int32_t> labels) {
  if (scores.size() != labels.size()) {
    throw TrainerError("area_under_curve(): there are " + std::to_string(scores.size()) +
                       " scores and " + std::to_string(labels.size()) +
                       " labels: give a score for each label");
  }
  std::vector<std::pair<float, std::int32_t>> sorted;
  sorted.reserve(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (labels[i] != 0 && labels[i] != 1) {
      throw TrainerError("area_under_curve(): sample " + std::to_string(i) + " has the label " +
                         std::to_string(labels[i]) + ": it is about two classes, 0 and 1");
    }
    sorted.emplace_back(scores[i], labels[i]);
  }
  std::ranges::sort(sorted, {}, &std::pair<float, std::int32_t>::first);
  double negatives = 0.0;
  double positives = 0.0;
  double wins = 0.0;
  for (std::size_t first = 0; first < sorted.size();) {
    std::array<double, 2> equal{};
    std::size_t last = first;
    for (; last < sorted.size() && !(sorted[first].first < sorted[last].first); ++last) {
      equal[static_cast<std::size_t>(sorted[last].second)] += 1.0;
    }
    wins += equal[1] * (negatives + equal[0] / 2.0);
    negatives += equal[0];
    positives += equal[1];
    first = last;
  }
  return negatives * positives == 0.0 ? 0.5 : wins / (negatives * positives);
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
