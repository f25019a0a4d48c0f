// SPDX-License-Identifier: Apache-2.0
// Losses and their gradients, in double precision for each sample.
#include "bindings/trainer/tensor/losses.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/operation_shapes.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

namespace {

void require_targets(const char* loss, const Tensor& outputs, std::size_t wanted,
                     std::size_t targets) {
  if (wanted == targets) return;
  throw TrainerError(std::string(loss) + ": there are " + std::to_string(targets) +
                     " targets for " + described(outputs) + ", expected " + std::to_string(wanted) +
                     ": give one for each");
}

// The loss as a tensor. `by_outputs` is its gradient; empty where none is wanted.
Loss finish(const char* name, const Tensor& outputs, const Values& by_outputs, Loss loss,
            double divisor) {
  Tape& tape = outputs.tape();
  Values value = Values::make(tape.pool(), {});
  value.plain()[0] = static_cast<float>(loss.sum / divisor);
  loss.value = tape.record(name, std::move(value), {outputs}, [by_outputs](Backward& back) {
    const float factor = back.plain_gradient().plain()[0];
    if (factor == 1.0F) return back.give(0, by_outputs);
    Values scaled = back.room(0);
    std::ranges::transform(by_outputs.plain(), scaled.data(),
                           [factor](float each) { return factor * each; });
    back.give(0, std::move(scaled));
  });
  return loss;
}

// What the sum is divided by, which the loss says as well.
double divide(Loss& loss, const Tensor& outputs, std::size_t global_batch) {
  loss.global_batch = global_batch != 0 ? global_batch : outputs.tape().pass().global_batch;
  return loss.global_batch == 0 ? 1.0 : static_cast<double>(loss.global_batch);
}

}  // namespace

Loss softmax_cross_entropy(const Tensor& logits, const Labels& labels, std::size_t global_batch) {
  constexpr const char* kName = "softmax_cross_entropy";
  require_sides(kName, logits, 2);
  require_targets(kName, logits, logits.side(0), labels.size());
  Tape& tape = logits.tape();
  const Values all = tape.plain(logits.raw());
  const std::size_t classes = logits.side(1);
  Values gradient = Values::make(tape.pool(), logits.shape());
  Loss loss;
  const double divisor = divide(loss, logits, global_batch);
  loss.samples = labels.size();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::span<const float> row = all.plain().subspan(i * classes, classes);
    const auto label = static_cast<std::size_t>(labels[i]);  // a negative one is too large
    if (label >= classes) {
      throw TrainerError(
          "label " + std::to_string(labels[i]) + " in row " + std::to_string(i) +
          " of a replica's part of a batch has no output: give the model an output per class");
    }
    // Subtracting the largest logit changes nothing but keeps exp() from overflowing.
    const auto largest = std::ranges::max_element(row);
    double total = 0.0;
    for (const float logit : row) total += std::exp(static_cast<double>(logit) - *largest);
    loss.sum += std::log(total) - (static_cast<double>(row[label]) - *largest);
    const bool first = static_cast<std::size_t>(largest - row.begin()) == label;
    if (first && std::isfinite(total)) ++loss.correct;
    float* const out = gradient.data() + i * classes;
    for (std::size_t j = 0; j < classes; ++j) {
      const double probability = std::exp(static_cast<double>(row[j]) - *largest) / total;
      const double target = j == label ? 1.0 : 0.0;
      out[j] = static_cast<float>((probability - target) / divisor);
    }
  }
  return finish(kName, logits, gradient, std::move(loss), divisor);
}

Loss binary_cross_entropy(const Tensor& logits, const Labels& labels, std::size_t global_batch) {
  constexpr const char* kName = "binary_cross_entropy";
  const Shape& shape = logits.shape();
  if (shape.size() > 2 || (shape.size() == 2 && shape[1] != 1)) {
    throw TrainerError(std::string(kName) + ": " + described(logits) +
                       " is not one number for each sample: give {samples} or {samples, 1}");
  }
  require_targets(kName, logits, logits.size(), labels.size());
  Tape& tape = logits.tape();
  const Values all = tape.plain(logits.raw());
  Values gradient = Values::make(tape.pool(), logits.shape());
  Loss loss;
  const double divisor = divide(loss, logits, global_batch);
  loss.samples = labels.size();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double logit = all.data()[i];
    const std::int64_t label = labels[i];
    if (label < 0 || label > 1) {
      throw TrainerError("label " + std::to_string(label) + " of sample " + std::to_string(i) +
                         " is neither 0 nor 1: give one of two classes");
    }
    // max(x, 0) - x y + log(1 + exp(-|x|)) is the same as the textbook's form and never overflows.
    loss.sum += std::max(logit, 0.0) - logit * static_cast<double>(label) +
                std::log1p(std::exp(-std::abs(logit)));
    if (label == 1 ? logit > 0.0 : logit <= 0.0) ++loss.correct;
    const double probability = 1.0 / (1.0 + std::exp(-logit));
    gradient.data()[i] = static_cast<float>((probability - static_cast<double>(label)) / divisor);
  }
  return finish(kName, logits, gradient, std::move(loss), divisor);
}

Loss mean_squared_error(const Tensor& prediction, std::span<const float> targets,
                        std::size_t global_batch) {
  constexpr const char* kName = "mean_squared_error";
  require_targets(kName, prediction, prediction.size(), targets.size());
  Tape& tape = prediction.tape();
  const Values all = tape.plain(prediction.raw());
  Values gradient = Values::make(tape.pool(), prediction.shape());
  Loss loss;
  const double divisor = divide(loss, prediction, global_batch);
  loss.samples = prediction.shape().empty() ? 1 : prediction.side(0);
  const double each = loss.samples == 0
                          ? 1.0
                          : static_cast<double>(targets.size()) / static_cast<double>(loss.samples);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const double distance = static_cast<double>(all.data()[i]) - targets[i];
    loss.sum += distance * distance / each;
    gradient.data()[i] = static_cast<float>(2.0 * distance / each / divisor);
  }
  return finish(kName, prediction, gradient, std::move(loss), divisor);
}

}  // namespace ronde::trainer
