// SPDX-License-Identifier: Apache-2.0
// Which callbacks a training has, and their order; the line of results.
#include "bindings/trainer/program/training.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "bindings/trainer/chief/callbacks.h"
#include "bindings/trainer/chief/evaluator.h"
#include "bindings/trainer/loop/agreement.h"
#include "bindings/trainer/loop/callbacks.h"
#include "bindings/trainer/loop/progress.h"
#include "bindings/trainer/program/program.h"

namespace ronde::trainer {

namespace {

void print(const std::string& line) { std::cout << line << '\n' << std::flush; }

// The callbacks that the flags ask for. The order counts: see SaveCheckpoints.
class Callbacks {
 public:
  Callbacks(const Training& training, const RunSettings& settings, Supervisor* supervisor)
      : chief_(training.replica.is_chief()),
        progress_(chief_ ? &std::cout : nullptr,
                  chief_ && stderr_is_terminal() ? &std::cerr : nullptr),
        lines_(training.replica, training.learner, settings.log_every,
               chief_ ? &std::cout : nullptr) {
    all_ = {&progress_, &history_, &lines_};
    if (supervisor == nullptr) return;
    const Say say = chief_ ? Say(print) : Say();
    if (!supervisor->logdir().empty()) {
      log_.emplace(training.replica, training.learner,
                   LogMetrics::Options{
                       .directory = supervisor->logdir(),
                       .every = settings.log_every == 0 ? 50 : settings.log_every,
                       .flags = settings.all_flags,
                       .ranks = training.engine.describe(),
                       .learning_rate = [schedule = training.schedule](
                                            auto step) { return learning_rate(schedule, step); },
                       .say = say});
      all_.push_back(&*log_);
    }
    if (settings.stop_early) {
      all_.push_back(&stopping_.emplace(supervisor->numbers(), settings.patience, 0.0, say));
    }
    all_.push_back(&saving_.emplace(*supervisor, training.learner));
  }

  [[nodiscard]] std::span<Callback* const> all() const { return all_; }
  [[nodiscard]] const std::vector<double>& losses() const { return history_.losses(); }

 private:
  bool chief_;
  Progress progress_;
  LossHistory history_;
  LogSteps lines_;
  std::optional<LogMetrics> log_;
  std::optional<EarlyStopping> stopping_;
  std::optional<SaveCheckpoints> saving_;
  std::vector<Callback*> all_;
};

// Where fit() goes on; settings.steps counts from the very first start of the training.
FitOptions options_of(const Training& training, const RunSettings& settings,
                      Supervisor* supervisor) {
  FitOptions options{.epochs = training.epochs, .most_steps = settings.steps};
  if (supervisor == nullptr) return options;
  go_on(options, *supervisor);
  double& threads = supervisor->numbers()["computing/threads"];
  if (threads != 0.0 && threads != settings.threads && training.replica.is_chief()) {
    print("each rank computes with --threads " + std::to_string(settings.threads) +
          " from here on, and did with " + std::to_string(static_cast<int>(threads)) +
          ": results agree to rounding");
  }
  threads = settings.threads;
  if (options.most_steps == 0) return options;
  if (options.first_global_step >= options.most_steps) options.epochs = options.first_epoch;
  options.most_steps -= std::min<std::size_t>(options.most_steps, options.first_global_step);
  return options;
}

// 0 where there is nothing to divide by: a training that was finished already takes no step.
double ratio(double numerator, double denominator) {
  return denominator == 0.0 ? 0.0 : numerator / denominator;
}

// Shares are of the time of rank 0: it is all computing or waiting; a transfer may go on beside
// either. `before` is what the engine had done when the training began.
std::string line_of(const Training& training, const FitResult& fit, double loss, double accuracy,
                    const std::string& hash, const ronde_statistics& before) {
  const ronde_statistics now = training.engine.statistics();
  const auto steps = static_cast<double>(fit.steps);
  const auto batches = static_cast<double>(now.batches - before.batches);
  const double waited = ratio(fit.wait_seconds, fit.seconds);
  std::array<char, 640> text{};
  std::snprintf(
      text.data(), text.size(),
      "ranks=%d %sepochs=%zu train_loss=%.9g test_accuracy=%.4f seconds=%.3f "
      "images_per_second=%.0f param_hash=%s batches=%" PRIu64
      " tensors_per_batch=%.2f control_bytes_per_step=%.1f compute_share=%.3f wait_share=%.3f"
      " transfer_share=%.3f share_before_wait=%.3f straggler=%d steps=%" PRIu64
      " first_gradient_ms=%.3f update_ms=%.3f",
      training.replica.size(), training.words.c_str(), training.epochs, loss, accuracy, fit.seconds,
      ratio(static_cast<double>(fit.samples), fit.seconds), hash.c_str(),
      now.batches - before.batches,
      ratio(static_cast<double>(now.tensors - before.tensors), batches),
      ratio(static_cast<double>(now.control_bytes - before.control_bytes), steps), 1.0 - waited,
      waited, ratio(fit.transfer_seconds, fit.seconds), fit.share_before_wait, fit.straggler,
      fit.steps, ratio(1e3 * fit.first_gradient_seconds, steps),
      ratio(1e3 * fit.update_seconds, steps));
  return text.data();
}

void plot(const std::string& file, std::span<const double> losses) {
  std::ofstream out(file);
  out << loss_picture(losses) << std::flush;
  if (out) return;
  throw TrainerError("--plot " + file +
                     ": cannot be written: " + std::generic_category().message(errno) +
                     ": give a file in a folder that exists and has room");
}

// The line of results; empty: it was stopped before the end.
std::optional<std::string> train_and_score(const Training& training, const RunSettings& settings,
                                           Supervisor* supervisor) {
  Replica& replica = training.replica;
  const ronde_statistics before = training.engine.statistics();
  const FitOptions options = options_of(training, settings, supervisor);
  const Callbacks callbacks(training, settings, supervisor);
  const FitResult fit =
      trainer::fit(replica, training.learner, training.data, options, callbacks.all(),
                   settings.stop_early ? &training.test : nullptr);
  if (fit.cut_short) return std::nullopt;
  const bool finished_before = fit.steps == 0 && supervisor != nullptr;
  const double loss = finished_before ? loss_before(*supervisor) : fit.training.loss();
  const double accuracy = evaluate(replica, training.learner, training.test).accuracy();
  const std::string hash = training.learner.parameter_hash();
  require_same_parameters(replica, hash);
  succeed_on_all(replica, [&] {
    if (!settings.plot.empty() && replica.is_chief()) plot(settings.plot, callbacks.losses());
  });
  return line_of(training, fit, loss, accuracy, hash, before);
}

}  // namespace

int train(const Training& training, const RunSettings& settings, Supervisor* supervisor) {
  if (settings.verbose && training.replica.is_chief()) print(training.engine.describe());
  std::optional<std::string> line;
  if (supervisor == nullptr) {
    line = train_and_score(training, settings, nullptr);
  } else {
    supervisor->managed_session([&] {
      if (auto result = train_and_score(training, settings, supervisor)) {
        supervisor->finish(std::move(*result));
      }
    });
    line = supervisor->result();
  }
  if (line && training.replica.is_chief()) print(*line);
  return supervisor == nullptr ? 0 : supervisor->exit_code();
}

int score_checkpoints(const Training& training, const RunSettings& settings, const Model& model) {
  std::vector<StateTensor> tensors = model.statistics();
  for (Parameter* one : model.parameters()) {
    tensors.push_back({one->name(), one->shape(), one->value()});
  }
  const std::size_t scored = evaluate_checkpoints(
      {.directory = settings.supervisor.logdir,
       .idle_seconds = settings.idle_seconds,
       .say = print},
      tensors, [&] { return evaluate(training.replica, training.learner, training.test); });
  print("checkpoints_scored=" + std::to_string(scored));
  return 0;
}

}  // namespace ronde::trainer
