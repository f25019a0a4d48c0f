// SPDX-License-Identifier: Apache-2.0
// Sums and counts, from which means are made once all ranks' are together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/tensor/losses.h"

namespace ronde::trainer {

struct Metrics {
  double loss_sum = 0.0;
  double correct = 0.0;
  double samples = 0.0;
  // The metrics that compile() names. Checkpoints do not keep them, so a training that resumes
  // within an epoch sums them from there on.
  struct Watched {
    double sum = 0.0;
    double samples = 0.0;
    friend bool operator==(const Watched&, const Watched&) = default;
  };
  std::map<std::string, Watched> watched{};

  void add(const Metrics& more) {
    loss_sum += more.loss_sum;
    correct += more.correct;
    samples += more.samples;
    for (const auto& [name, other] : more.watched) {
      watched[name].sum += other.sum;
      watched[name].samples += other.samples;
    }
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
  // "loss", "accuracy", or one that is watched. Throws TrainerError for another name.
  [[nodiscard]] double mean(const std::string& name) const;
  // All sums, as they travel between ranks that watch the same; and back.
  [[nodiscard]] std::vector<double> numbers() const;
  [[nodiscard]] Metrics with(std::span<const double> numbers) const;
};

// The area under the ROC curve of two classes: how often a sample of label 1 has a larger score
// than one of label 0; an equal one counts half. 0.5 where a class has no samples. Throws
// TrainerError where the counts differ or a label is neither.
[[nodiscard]] double area_under_curve(std::span<const float> scores,
                                      std::span<const std::int32_t> labels);

[[nodiscard]] Metrics metrics_of(const Loss& loss);

// Collective: the sums over all ranks.
[[nodiscard]] Metrics over_ranks(Replica& replica, const std::string& name, const Metrics& mine);

}  // namespace ronde::trainer
