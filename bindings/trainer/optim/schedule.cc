// SPDX-License-Identifier: Apache-2.0
// Learning rates by step.
#include "bindings/trainer/optim/schedule.h"

#include <cmath>
#include <numbers>
#include <string>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

using ScheduleKind = ScheduleOptions::Kind;

void require(bool holds, const std::string& what, double value, const std::string& allowed) {
  if (holds) return;
  throw TrainerError("the schedule's " + what + " is " + exact_text(value) + ": use " + allowed);
}

void require_valid(const ScheduleOptions& options) {
  require(options.learning_rate >= 0.0 && std::isfinite(options.learning_rate), "learning rate",
          options.learning_rate, "a number from 0");
  if (options.kind == ScheduleKind::kStep) {
    require(options.every > 0, "number of steps between two rates", 0.0, "at least 1");
    require(options.factor > 0.0 && std::isfinite(options.factor), "factor", options.factor,
            "one above 0");
  } else if (options.kind != ScheduleKind::kConstant) {
    require(options.total > options.warmup, "total of steps", static_cast<double>(options.total),
            "more than the " + std::to_string(options.warmup) + " of the warm-up");
  }
}

}  // namespace

double learning_rate(const ScheduleOptions& options, std::uint64_t step) {
  require_valid(options);
  const double whole = options.learning_rate;
  if (step < options.warmup) {
    return whole * (static_cast<double>(step) + 1.0) / static_cast<double>(options.warmup);
  }
  const std::uint64_t done = step - options.warmup;
  if (options.kind == ScheduleKind::kConstant) return whole;
  if (options.kind == ScheduleKind::kStep) {
    const std::uint64_t times = done / options.every;
    return whole * std::pow(options.factor, static_cast<double>(times));
  }
  if (step >= options.total) return 0.0;
  const double share =
      static_cast<double>(done) / static_cast<double>(options.total - options.warmup);
  if (options.kind == ScheduleKind::kLinear) return whole * (1.0 - share);
  return whole * 0.5 * (1.0 + std::cos(std::numbers::pi * share));
}

std::string text_of(const ScheduleOptions& options) {
  std::string text = "learning rate " + number_text(options.learning_rate);
  switch (options.kind) {
    case ScheduleKind::kConstant:
      break;
    case ScheduleKind::kStep:
      text += ", times " + number_text(options.factor) + " each " + std::to_string(options.every) +
              " steps";
      break;
    case ScheduleKind::kCosine:
      text += ", to 0 along a cosine over " + std::to_string(options.total) + " steps";
      break;
    case ScheduleKind::kLinear:
      text += ", to 0 in a line over " + std::to_string(options.total) + " steps";
      break;
  }
  if (options.warmup != 0) text += ", after a warm-up of " + std::to_string(options.warmup);
  return text;
}

double learning_rate_for(std::size_t global_batch, const std::map<std::size_t, double>& rates) {
  if (const auto found = rates.find(global_batch); found != rates.end()) return found->second;
  std::string known;
  for (const auto& [batch, rate] : rates) {
    known += (known.empty() ? "" : ", ") + std::to_string(batch);
  }
  throw TrainerError("there is no learning rate for a global batch of " +
                         std::to_string(global_batch) + ": add it to the table, which has " +
                         (known.empty() ? "none" : known),
                     kExitConfiguration);
}

}  // namespace ronde::trainer
