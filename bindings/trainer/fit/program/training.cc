// SPDX-License-Identifier: Apache-2.0
// Which callbacks a training has, and their order; the line of results.
#include "bindings/trainer/fit/program/training.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/agreement.h"
#include "bindings/trainer/fit/callbacks.h"
#include "bindings/trainer/fit/fit.h"
#include "bindings/trainer/fit/program/program.h"
#include "bindings/trainer/fit/progress.h"
#include "bindings/trainer/keep/callbacks.h"
#include "bindings/trainer/keep/evaluator.h"
#include "bindings/trainer/keep/stop_signals.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

void print(const std::string& line) { std::cout << line << '\n' << std::flush; }

// One training on this replica.
struct Session {
  Replica& replica;
  Learner& learner;
  const Training& training;
  const RunSettings& settings;
  const Dataset& data;  // this replica's part
  const Dataset& test;
  Supervisor* supervisor = nullptr;  // null: nothing is saved or logged
  ScheduleOptions schedule{};        // for the logs
};

bool classifies(const Training& training) { return training.test.format().classes > 0; }

StepLines step_lines(const Training& training) { return {classifies(training), training.watch}; }

// The callbacks that the flags ask for. The order counts: see SaveCheckpoints.
class Callbacks {
 public:
  explicit Callbacks(const Session& here)
      : chief_(here.replica.is_chief()),
        progress_(chief_ ? &std::cout : nullptr,
                  chief_ && stderr_is_terminal() ? &std::cerr : nullptr),
        lines_(here.replica, here.learner, here.settings.log_every,
               chief_ || here.learner.path().is_served() ? &std::cout : nullptr,
               step_lines(here.training)) {
    all_ = {&progress_, &history_, &lines_};
    if (here.supervisor == nullptr) return;
    Supervisor& supervisor = *here.supervisor;
    const RunSettings& settings = here.settings;
    const PrintLine say = chief_ ? PrintLine(print) : PrintLine();
    if (!supervisor.logdir().empty()) {
      log_.emplace(here.replica, here.learner,
                   LogMetrics::Options{
                       .directory = supervisor.logdir(),
                       .every = settings.log_every == 0 ? 50 : settings.log_every,
                       .flags = settings.all_flags,
                       .ranks = here.replica.engine().describe(),
                       .loss = here.training.loss_name,
                       .learning_rate = [schedule = here.schedule](
                                            auto step) { return learning_rate(schedule, step); },
                       .say = say});
      all_.push_back(&*log_);
    }
    if (settings.stop_early && (chief_ || !here.learner.path().is_served())) {
      all_.push_back(&stopping_.emplace(supervisor.numbers(), settings.patience, 0.0, say));
    }
    all_.push_back(&saving_.emplace(supervisor, here.learner));
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
FitOptions options_of(const Session& here) {
  FitOptions options{.epochs = here.training.epochs, .most_steps = here.settings.steps};
  if (here.supervisor == nullptr) return options;
  go_on(options, *here.supervisor);
  const int now = here.replica.strategy().threads_per_replica();
  double& threads = here.supervisor->numbers()["computing/threads"];
  if (threads != 0.0 && threads != now && here.replica.is_chief()) {
    print("each rank computes with --threads " + std::to_string(now) +
          " from here on, and did with " + std::to_string(static_cast<int>(threads)) +
          ": results agree to rounding");
  }
  threads = now;
  if (options.most_steps == 0) return options;
  if (options.first_global_step >= options.most_steps) options.epochs = options.first_epoch;
  options.most_steps -= std::min<std::size_t>(options.most_steps, options.first_global_step);
  return options;
}

// 0 where there is nothing to divide by: a training that was finished already takes no step.
double ratio(double numerator, double denominator) {
  return denominator == 0.0 ? 0.0 : numerator / denominator;
}

// "test_accuracy=0.8123", or of a regression "test_loss=0.08", and what is watched.
std::string scores_text(const Training& training, const Metrics& scores) {
  std::string text = classifies(training) ? formatted("test_accuracy=%.4f", scores.accuracy())
                                          : formatted("test_loss=%.9g", scores.loss());
  for (const auto& [name, number] : training.watch) {
    text += ' ' + name + formatted("=%.6f", static_cast<double>(*number));
  }
  return text;
}

// Shares are of the time of rank 0: it is all computing or waiting; a transfer may go on beside
// either. `before` is what the engine had done when the training began.
std::string line_of(const Session& here, const FitResult& fit, double loss, const Metrics& scores,
                    const std::string& hash, const ronde_statistics& before) {
  const ronde_statistics now = here.replica.engine().statistics();
  const auto steps = static_cast<double>(fit.steps);
  const auto batches = static_cast<double>(now.batches - before.batches);
  const double waited = ratio(fit.wait_seconds, fit.seconds);
  return formatted(
      "ranks=%zu %sepochs=%zu train_loss=%.9g %s seconds=%.3f "
      "images_per_second=%.0f param_hash=%s batches=%" PRIu64
      " tensors_per_batch=%.2f control_bytes_per_step=%.1f compute_share=%.3f wait_share=%.3f"
      " transfer_share=%.3f share_before_wait=%.3f straggler=%d steps=%" PRIu64
      " first_gradient_ms=%.3f update_ms=%.3f",
      here.replica.strategy().num_replicas_in_sync(), here.training.words.c_str(),
      here.training.epochs, loss, scores_text(here.training, scores).c_str(), fit.seconds,
      ratio(static_cast<double>(fit.samples), fit.seconds), hash.c_str(),
      now.batches - before.batches,
      ratio(static_cast<double>(now.tensors - before.tensors), batches),
      ratio(static_cast<double>(now.control_bytes - before.control_bytes), steps), 1.0 - waited,
      waited, ratio(fit.transfer_seconds, fit.seconds), fit.share_before_wait, fit.straggler,
      fit.steps, ratio(1e3 * fit.first_gradient_seconds, steps),
      ratio(1e3 * fit.update_seconds, steps));
}

void plot(const std::string& file, std::span<const double> losses) {
  std::ofstream out(file);
  out << loss_picture(losses) << std::flush;
  if (out) return;
  throw TrainerError("--plot " + file +
                     ": cannot be written: " + std::generic_category().message(errno) +
                     ": give a file in a folder that exists and has room");
}

// The rank that has cost the others the most time; empty where that is less than a hundredth of it.
std::string late_text(Engine& engine, double seconds) {
  struct Cost {
    double nanoseconds = 0.0;
    ronde_late worst{};
  };
  std::map<std::int32_t, Cost> ranks;
  for (const ronde_late& row : engine.late()) {
    Cost& cost = ranks[row.rank];
    // The tensors of a step are late together, so only one of them counts.
    if (static_cast<double>(row.total_nanoseconds) <= cost.nanoseconds) continue;
    cost = {static_cast<double>(row.total_nanoseconds), row};
  }
  const auto most =
      std::ranges::max_element(ranks, {}, [](const auto& rank) { return rank.second.nanoseconds; });
  if (most == ranks.end() || most->second.nanoseconds < 1e7 * seconds) return "";
  const ronde_late& row = most->second.worst;
  return formatted("late: the others waited for rank %d in %" PRIu64
                   " steps of '%s', %.1f ms on average and %.1f ms at worst",
                   most->first, row.steps, row.tensor,
                   ratio(1e-6 * most->second.nanoseconds, static_cast<double>(row.steps)),
                   1e-6 * static_cast<double>(row.worst_nanoseconds));
}

// The line of results; empty: it was stopped before the end.
std::optional<std::string> train_and_score(const Session& here) {
  Replica& replica = here.replica;
  const RunSettings& settings = here.settings;
  const ronde_statistics before = here.replica.engine().statistics();
  const FitOptions options = options_of(here);
  const Callbacks callbacks(here);
  const FitResult fit = trainer::fit(replica, here.learner, here.data, options, callbacks.all(),
                                     settings.stop_early ? &here.test : nullptr);
  if (fit.cut_short) return std::nullopt;
  const std::string late = late_text(replica.engine(), fit.seconds);
  if (!late.empty()) print(late);
  GradientPath& path = here.learner.path();
  if (path.is_served() && !replica.is_chief()) return path.words();
  const bool finished_before = fit.steps == 0 && here.supervisor != nullptr;
  const double own_loss = fit.training.samples == 0.0 ? std::nan("") : fit.training.loss();
  const double loss = finished_before ? loss_before(*here.supervisor) : own_loss;
  const Metrics scores = evaluate(replica, here.learner, here.test);
  const std::string hash = here.learner.parameter_hash();
  require_same_parameters(replica, hash);
  succeed_on_all(replica, [&] {
    if (!settings.plot.empty() && replica.is_chief()) plot(settings.plot, callbacks.losses());
  });
  const std::string line = line_of(here, fit, loss, scores, hash, before);
  return path.is_served() ? line + ' ' + path.words() : line;
}

int score_checkpoints(const Session& here, const Network& model) {
  if (here.replica.size() != 1) {
    throw AgreedError("--job evaluate is one replica beside the training: leave out --replicas", 0,
                      kExitConfiguration);
  }
  std::vector<StateTensor> tensors = model.statistics();
  for (Parameter* one : model.parameters()) {
    tensors.push_back({one->name(), one->shape(), one->value()});
  }
  const std::size_t scored = evaluate_checkpoints(
      {.directory = here.settings.supervisor.logdir,
       .idle_seconds = here.settings.idle_seconds,
       .say = print},
      tensors, [&] { return evaluate(here.replica, here.learner, here.test); });
  print("checkpoints_scored=" + std::to_string(scored));
  return 0;
}

// The task that looks on: scores the variables as they are, once a second, until the end.
int look_on(const Session& here) {
  GradientPath& served = here.learner.path();
  const StopSignals signals;
  served.begin();
  for (bool last = false; !last;) {
    last = served.stopped() != Stop::kNo;
    const Metrics scores = evaluate(here.replica, here.learner, here.test);
    print(step_lines(here.training).of(served.global_step(), scores));
    if (signals.stop_asked() && !last) {
      throw TrainerError("the evaluator was told to stop, and ends: the training goes on",
                         here.settings.supervisor.stopped_exit_code);
    }
    if (!last) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  served.end();
  return 0;
}

void begin(const Session& here) {
  if (!here.settings.verbose || !here.replica.is_chief()) return;
  print(here.replica.strategy().description() + '\n' + here.replica.engine().describe());
}

int supervise(Replica& replica, Model& model, const Training& training,
              const RunSettings& settings) {
  const Dataset data = model.shard(training.data);
  const Dataset test = replica.shard_to_score(training.test);
  Learner& learner = model.learner();
  Session here{replica, learner, training, settings, data, test};
  if (settings.evaluates) return score_checkpoints(here, model.network());
  begin(here);
  if (replica.strategy().only_evaluates()) return look_on(here);
  if (learner.path().reads_data()) learner.path().alike("data", data.settings());
  SupervisorOptions duties = settings.supervisor;
  duties.flags = training.same;
  duties.flags.emplace_back("data", data.settings());
  Supervisor supervisor(replica, model.optimizer(), duties);
  here.supervisor = &supervisor;
  here.schedule = model.optimizer().of(replica).options().schedule;
  supervisor.managed_session([&] {
    if (auto line = train_and_score(here)) supervisor.finish(std::move(*line));
  });
  const bool prints = replica.is_chief() || replica.strategy().is_served();
  if (supervisor.result() && prints) print(*supervisor.result());
  return supervisor.exit_code();
}

}  // namespace

int train(Model& model, const Training& training, const RunSettings& settings) {
  model.build(training.data.format().shape);
  return model.strategy()
      .run([&](Replica& here) { return supervise(here, model, training, settings); })
      .values()
      .front();
}

int train(Replica& here, Learner& learner, const Training& training, const RunSettings& settings) {
  const Dataset data = here.shard(training.data);
  const Dataset test = here.shard_to_score(training.test);
  const Session one{here, learner, training, settings, data, test};
  begin(one);
  if (const auto line = train_and_score(one); line && here.is_chief()) print(*line);
  return 0;
}

}  // namespace ronde::trainer
