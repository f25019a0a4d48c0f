// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy: see loss.h.
#include "bindings/trainer/loss.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "bindings/trainer/errors.h"

namespace ronde::trainer {

LossSums softmax_cross_entropy(const Matrix& logits, std::span<const std::uint8_t> labels,
                               std::size_t global_batch, Matrix* gradient) {
  if (labels.size() != logits.rows()) {
    throw TrainerError("there are " + std::to_string(labels.size()) + " labels for " +
                       std::to_string(logits.rows()) + " samples: give one label per sample");
  }
  if (gradient != nullptr) gradient->resize(logits.rows(), logits.columns());
  LossSums sums;
  for (std::size_t i = 0; i < logits.rows(); ++i) {
    const std::span<const float> row = logits.row(i);
    const std::size_t label = labels[i];
    if (label >= row.size()) {
      throw TrainerError("label " + std::to_string(label) + " of sample " + std::to_string(i) +
                         " has no output: give the model an output per class");
    }
    // Subtracting the largest logit changes nothing but keeps exp() from overflowing.
    const auto largest = std::max_element(row.begin(), row.end());
    double total = 0.0;
    for (const float logit : row) total += std::exp(static_cast<double>(logit) - *largest);
    sums.loss += std::log(total) - (static_cast<double>(row[label]) - *largest);
    if (static_cast<std::size_t>(largest - row.begin()) == label) ++sums.correct;
    if (gradient == nullptr) continue;
    const std::span<float> out = gradient->row(i);
    for (std::size_t j = 0; j < row.size(); ++j) {
      const double probability = std::exp(static_cast<double>(row[j]) - *largest) / total;
      const double target = j == label ? 1.0 : 0.0;
      out[j] = static_cast<float>((probability - target) / static_cast<double>(global_batch));
    }
  }
  return sums;
}

}  // namespace ronde::trainer
