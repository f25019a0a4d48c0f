// SPDX-License-Identifier: Apache-2.0
// What callbacks print.
#include "bindings/trainer/fit/callbacks.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <ostream>

#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

constexpr const char* kBest = "early_stopping/best";
constexpr const char* kSince = "early_stopping/epochs_without_gain";

std::string epochs_text(std::uint64_t epochs) {
  return std::to_string(epochs) + (epochs == 1 ? " epoch" : " epochs");
}

}  // namespace

double watched_loss(const TrainingState& state) {
  return state.validation.samples > 0.0 ? state.validation.loss() : state.training.loss();
}

void LogSteps::on_step(TrainingState& state) {
  if (!state.is_one_of(every_)) return;
  const Metrics all = over_ranks(replica_, "fit/step", learner_.last_step());
  if (lines_ == nullptr || all.samples == 0.0) return;  // of a chief that only looks on
  *lines_ << how_.of(state.global_step, all) << '\n' << std::flush;
}

std::string StepLines::of(std::uint64_t step, const Metrics& metrics) const {
  std::string line = formatted("step %" PRIu64 ": loss %.9g", step, metrics.loss());
  if (classes) line += formatted(", accuracy %.4f", metrics.accuracy());
  for (const auto& [name, number] : watched) {
    line += ", " + name + formatted(" %.4f", static_cast<double>(*number));
  }
  return line;
}

std::uint64_t EarlyStopping::epochs_without_gain() const {
  const auto found = numbers_.find(kSince);
  return found == numbers_.end() ? 0 : static_cast<std::uint64_t>(found->second);
}

void EarlyStopping::on_start(TrainingState& state) {
  const std::uint64_t since = epochs_without_gain();
  if (since >= patience_) {
    state.stop = true;  // it had been stopped before
    return;
  }
  const std::uint64_t left = state.epochs - std::min(state.epochs, state.epoch);
  if (since + left > patience_ || !say_) return;
  say_("early stopping waits for " + epochs_text(patience_) + " without a gain, and only " +
       epochs_text(left) +
       " are left: it cannot end this training early; use a smaller patience "
       "or more epochs");
}

void EarlyStopping::on_epoch(TrainingState& state) {
  if (!state.epoch_is_over) return;
  const double loss = watched_loss(state);
  const auto best = numbers_.find(kBest);
  // A loss that is not finite is no gain.
  if (std::isfinite(loss) && (best == numbers_.end() || loss < best->second - least_gain_)) {
    numbers_[kBest] = loss;
    numbers_[kSince] = 0.0;
    return;
  }
  const std::uint64_t since = epochs_without_gain() + 1;
  numbers_[kSince] = static_cast<double>(since);
  if (since < patience_) return;
  state.stop = true;
  if (say_) {
    say_("early stopping: no gain for " + epochs_text(since) + ", ended after epoch " +
         std::to_string(state.epoch + 1));
  }
}

}  // namespace ronde::trainer
