// SPDX-License-Identifier: Apache-2.0
// Losses, and metrics by name.
#include "bindings/trainer/fit/strategy/metric.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw TrainerError("compile(): the metric \"" + name + "\" " + why, kExitConfiguration);
}

// Counts the samples whose label is among the `most` largest outputs.
Metric::Sum top(const std::string& name, std::size_t most) {
  return [name, most](const Tensor& outputs, const Batch& batch) {
    const std::size_t classes = outputs.shape().empty() ? 0 : outputs.shape().back();
    if (batch.labels.size() != batch.size() || outputs.size() != batch.size() * classes) {
      refuse(name, "needs a label and a row of outputs for each sample: give labels");
    }
    double right = 0.0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const auto row = outputs.values().subspan(i * classes, classes);
      const auto label = static_cast<std::size_t>(batch.labels[i]);
      if (label >= classes) {
        refuse(name, "meets label " + std::to_string(label) + " of " + std::to_string(classes) +
                         " outputs: give the model an output for each class");
      }
      const float own = row[label];
      const auto above = std::ranges::count_if(row, [own](float other) { return !(other <= own); });
      if (static_cast<std::size_t>(above) < most) right += 1.0;
    }
    return right;
  };
}

double absolute_error(const Tensor& outputs, const Batch& batch) {
  if (outputs.size() != batch.targets.size()) {
    refuse("mean_absolute_error", "needs as many targets as outputs: give numbers to predict");
  }
  double sum = 0.0;
  for (std::size_t i = 0; i < batch.targets.size(); ++i) {
    sum += std::abs(static_cast<double>(outputs.values()[i]) - batch.targets[i]);
  }
  return batch.size() == 0
             ? 0.0
             : sum * static_cast<double>(batch.size()) / static_cast<double>(batch.targets.size());
}

}  // namespace

Loss classification_loss(const Tensor& outputs, const Batch& batch) {
  return softmax_cross_entropy(outputs, batch.labels);
}

Loss two_classes_loss(const Tensor& outputs, const Batch& batch) {
  return binary_cross_entropy(outputs, batch.labels);
}

Loss regression_loss(const Tensor& outputs, const Batch& batch) {
  return mean_squared_error(outputs, batch.targets);
}

Metric::Metric(const char* name) : name_(name) {
  constexpr std::string_view kTop = "top_";
  constexpr std::string_view kAccuracy = "_accuracy";
  if (name_ == "accuracy") return;
  if (name_ == "mean_absolute_error") {
    sum_ = absolute_error;
    return;
  }
  std::size_t most = 0;
  if (name_.starts_with(kTop) && name_.ends_with(kAccuracy)) {
    std::from_chars(name_.data() + kTop.size(), name_.data() + name_.size(), most);
  }
  if (name_ != "top_" + std::to_string(most) + "_accuracy" || most == 0) {
    refuse(
        name_,
        "is unknown: use accuracy, top_5_accuracy (or another number) or mean_absolute_error, or "
        "give a function, too");
  }
  sum_ = top(name_, most);
}

Metric::Metric(std::string name, Sum sum) : name_(std::move(name)), sum_(std::move(sum)) {
  if (!sum_) refuse(name_, "has an empty function: give one");
  if (name_ == "loss" || name_ == "accuracy" || name_ == "number")
    refuse(name_, "is there already: name it otherwise");
}

LossFunction watching(LossFunction loss, const std::vector<Metric>& metrics) {
  std::map<std::string, Metric::Sum> sums;
  for (const Metric& one : metrics) {
    if (!sums.emplace(one.name_, one.sum_).second) refuse(one.name_, "is there twice: leave one");
  }
  std::erase_if(sums, [](const auto& one) { return !one.second; });
  if (sums.empty()) return loss;
  return
      [loss = std::move(loss), sums = std::move(sums)](const Tensor& outputs, const Batch& batch) {
        Loss result = loss(outputs, batch);
        for (const auto& [name, sum] : sums) result.watched[name] = sum(outputs, batch);
        return result;
      };
}

}  // namespace ronde::trainer
