// SPDX-License-Identifier: Apache-2.0
// The callbacks that only the chief's room has.
#include "bindings/trainer/chief/callbacks.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "bindings/trainer/loop/agreement.h"
#include "bindings/trainer/loop/progress.h"

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

double loss_before(const Supervisor& supervisor) {
  if (supervisor.sums_before().samples > 0.0) return supervisor.sums_before().loss();
  const auto last = supervisor.numbers().find(kLastEpochLoss);
  return last == supervisor.numbers().end() ? 0.0 : last->second;
}

void go_on(FitOptions& options, const Supervisor& supervisor) {
  options.first_epoch = supervisor.epoch();
  options.first_step = supervisor.step_in_epoch();
  options.first_sums = supervisor.sums_before();
  options.first_global_step = supervisor.global_step();
}

void SaveCheckpoints::on_step(TrainingState& state) {
  supervisor_.step_done(learner_.metrics());
  state.stop_now = state.stop_now || supervisor_.should_stop();
}

void SaveCheckpoints::on_epoch(TrainingState& state) {
  if (!state.epoch_is_over) return;
  supervisor_.numbers()[kLastEpochLoss] = state.training.loss();
  supervisor_.epoch_done(watched_loss(state));
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

void LogMetrics::on_start(TrainingState& state) {
  // Whoever begins wants to know at once; a training that goes on does without its logs.
  std::string failure;
  try {
    if (replica_.is_chief()) {
      const std::uint64_t next = state.global_step + 1;
      events_ = std::make_unique<EventWriter>(options_.directory, next);
      log_ = std::make_unique<MetricLog>(options_.directory + "/metrics.jsonl", next);
      std::string table = "| flag | value |\n|---|---|\n";
      for (const auto& [name, value] : options_.flags) {
        table += "| " + name + " | " + value + " |\n";
      }
      events_->text("flags", state.global_step, table);
      if (!options_.ranks.empty()) {
        events_->text("ranks", state.global_step, "```\n" + options_.ranks + "\n```");
      }
      events_->flush();
    }
  } catch (const std::exception& error) {
    failure = error.what();
    events_.reset();
  }
  if (!failure.empty() && state.global_step != 0) {
    const std::string why = std::exchange(failure, "");
    if (options_.say) options_.say("no logs: " + why);
  }
  require_success(replica_, failure);
  last_samples_ = state.samples;
  began_ = steady_seconds();
  waited_ = waited();
}

void LogMetrics::on_step(TrainingState& state) {
  samples_ += state.samples - (state.samples < last_samples_ ? 0 : last_samples_);
  last_samples_ = state.samples;
  if (options_.every == 0 || state.global_step % options_.every != 0) return;
  const double seconds = steady_seconds() - began_;
  const double mine = waited() - waited_;
  const Metrics step = learner_.last_step();
  // The sums of the step, and what each rank has waited.
  constexpr std::size_t kSums = 3;
  std::vector<double> all(kSums + static_cast<std::size_t>(replica_.size()));
  all[0] = step.loss_sum;
  all[1] = step.correct;
  all[2] = step.samples;
  all[kSums + static_cast<std::size_t>(replica_.rank())] = mine;
  replica_.allreduce("log/step", all, Reduction::kSum);
  const Metrics sums{all[0], all[1], all[2]};
  const auto waits = std::span(all).subspan(kSums);
  const auto straggler = std::ranges::min_element(waits) - waits.begin();
  Values values{{"train/loss", sums.loss()},
                {"train/accuracy", sums.accuracy()},
                {"speed/images_per_second", static_cast<double>(samples_) / seconds},
                {"speed/wait_share", mine / seconds},
                {"speed/straggler", static_cast<double>(straggler)}};
  if (options_.learning_rate) {
    values["train/learning_rate"] = options_.learning_rate(state.global_step - 1);
  }
  write(state.global_step, values);
  began_ = steady_seconds();
  waited_ = waited();
  samples_ = 0;
}

void LogMetrics::on_epoch(TrainingState& state) {
  if (!state.epoch_is_over) return;
  last_samples_ = 0;
  Values values{{"epoch/loss", state.training.loss()},
                {"epoch/accuracy", state.training.accuracy()},
                {"epoch/number", static_cast<double>(state.epoch + 1)}};
  if (state.validation.samples > 0.0) {
    values["validation/loss"] = state.validation.loss();
    values["validation/accuracy"] = state.validation.accuracy();
  }
  write(state.global_step, values);
}

void LogMetrics::write(std::uint64_t step, const Values& values) {
  if (!events_) return;
  for (const auto& [tag, value] : values) events_->scalar(tag, step, value);
  events_->flush();
  log_->write(step, values);
  if (said_ || !(events_->failed() || log_->failed()) || !options_.say) return;
  said_ = true;
  options_.say("logs cannot be written any more: is the disk of " + options_.directory +
               " full? Training goes on");
}

}  // namespace ronde::trainer
