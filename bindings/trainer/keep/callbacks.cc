// SPDX-License-Identifier: Apache-2.0
// The callbacks that write checkpoints and logs.
#include "bindings/trainer/keep/callbacks.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/agreement.h"
#include "bindings/trainer/fit/progress.h"

namespace ronde::trainer {

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

void SaveCheckpoints::on_start(TrainingState& /*state*/) {
  if (!supervisor_.averages_by_weights()) return;
  throw AgreedError(
      "a training on processes' own data sets (Dataset::own()) is not supervised yet: leave the "
      "supervisor and its checkpoints out, and save the chief's parameters between calls of fit()",
      0, kExitConfiguration);
}

void SaveCheckpoints::on_step(TrainingState& state) {
  supervisor_.set_place(state.epoch, state.step - 1);  // before this step
  supervisor_.step_done(learner_.metrics());
  state.stop_now = state.stop_now || supervisor_.should_stop();
}

void SaveCheckpoints::on_validation_batch(TrainingState& state) {
  supervisor_.look();
  state.stop_now = state.stop_now || supervisor_.should_stop();
}

void SaveCheckpoints::on_end(TrainingState& state) {
  supervisor_.set_place(state.epoch, state.step);
  if (!state.stop_now) supervisor_.save();
}

void SaveCheckpoints::on_epoch(TrainingState& state) {
  if (!state.epoch_is_over) return;
  if (state.training.samples > 0.0) supervisor_.numbers()[kLastEpochLoss] = state.training.loss();
  // A chief without steps of its own has no loss.
  const bool knows = state.training.samples > 0.0 || state.validation.samples > 0.0;
  supervisor_.epoch_done(knows ? std::optional(watched_loss(state)) : std::nullopt);
}

void LogMetrics::on_start(TrainingState& state) {
  const auto every = gather_texts(replica_, "log/every", std::to_string(options_.every));
  options_.every = std::stoull(every.front());
  // A new training fails at once; one that resumes continues without logs.
  succeed_on_all(replica_, [&] {
    try {
      if (replica_.is_chief()) open(state.global_step);
    } catch (const DataError& error) {
      if (state.global_step == 0) throw;
      if (options_.say) options_.say(std::string("no logs: ") + error.what());
    }
  });
  last_samples_ = state.samples;
  began_ = steady_seconds();
  waited_ = waited();
}

void LogMetrics::open(std::uint64_t step) {
  const auto logs = std::make_shared<TrainingLogs>(options_.directory, step + 1, step == 0);
  std::string table = "| flag | value |\n|---|---|\n";
  for (const auto& [name, value] : options_.flags) table += "| " + name + " | " + value + " |\n";
  logs->text("flags", step, table);
  if (!options_.ranks.empty()) logs->text("ranks", step, "```\n" + options_.ranks + "\n```");
  logs_ = logs;
}

void LogMetrics::on_step(TrainingState& state) {
  samples_ += state.samples - (state.samples < last_samples_ ? 0 : last_samples_);
  last_samples_ = state.samples;
  if (!state.is_one_of(options_.every)) return;
  const double seconds = steady_seconds() - began_;
  const double mine = waited() - waited_;
  const Metrics step = learner_.last_step();
  // The sums of the step, and how long each rank has waited.
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
  Values values{{"speed/images_per_second", static_cast<double>(samples_) / seconds},
                {"speed/wait_share", mine / seconds},
                {"speed/straggler", static_cast<double>(straggler)}};
  if (sums.samples > 0.0) {
    values[options_.loss] = sums.loss();
    values["train/accuracy"] = sums.accuracy();
  }
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
  Values values{{"epoch/number", static_cast<double>(state.epoch + 1)}};
  if (state.training.samples > 0.0) {
    values["epoch/loss"] = state.training.loss();
    values["epoch/accuracy"] = state.training.accuracy();
  }
  if (state.validation.samples > 0.0) {
    values["validation/loss"] = state.validation.loss();
    values["validation/accuracy"] = state.validation.accuracy();
  }
  for (const auto& [name, sums] : state.training.watched) {
    values["epoch/" + name] = state.training.mean(name);
  }
  for (const auto& [name, sums] : state.validation.watched) {
    values["validation/" + name] = state.validation.mean(name);
  }
  write(state.global_step, values);
}

void LogMetrics::write(std::uint64_t step, const Values& values) {
  if (!logs_) return;
  bool failed = !writer_.wait({});  // waits for a disk that hangs once
  if (!failed) {
    try {
      writer_.start([logs = logs_, step, values] { logs->write(step, values); });
      failed = !writer_.wait(options_.patience);
      if (!failed) {  // only now does the writing thread not use the logs
        writer_.rethrow();
        failed = logs_->failed();
      }
    } catch (const std::exception&) {  // no thread, or no memory: logs never end a training
      failed = true;
    }
  }
  if (std::exchange(failing_, failed) == failed || !options_.say) return;
  options_.say(failed ? "logs cannot be written: is the disk of " + options_.directory +
                            " full? Training goes on without logs"
                      : "logs are written again from step " + std::to_string(step) + " on");
}

}  // namespace ronde::trainer
