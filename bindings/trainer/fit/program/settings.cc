// SPDX-License-Identifier: Apache-2.0
// The flags of a training.
#include "bindings/trainer/fit/program/settings.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <ronde/ronde.hpp>
#include <string_view>
#include <utility>
#include <variant>

#include "base/words/tf_config.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

constexpr std::uint64_t kMany = 1'000'000'000;

FlagValue seconds(double& target) {
  return real(
      target, [](double value) { return value >= 0.0 && value <= 1e9; }, "a number from 0 to 1e9");
}

// A training that had the same end is finished when it got there.
std::string goal_of(const Flags& flags) {
  constexpr auto kEnds = std::to_array<std::string_view>(
      {"--early-stopping", "--epochs", "--patience", "--steps", "--test-images"});
  std::string goal;
  for (const auto& [name, value] : flags) {
    if (std::ranges::find(kEnds, name) != kEnds.end()) goal += name + ' ' + value + ' ';
  }
  return goal;
}

void check_run(const FlagTable& table, RunSettings& settings) {
  settings.all_flags = table.values();
  if (!settings.evaluates) return;
  const auto words = variable("TF_CONFIG");
  const auto task = base::read_tf_config(words.value_or("{}"));
  const auto* const config = std::get_if<base::TfConfig>(&task);
  // An evaluator by TF_CONFIG is no rank, but mpirun may have started several.
  if (config != nullptr && config->type == "evaluator") unsetenv("TF_CONFIG");
  try {
    require_alone();
  } catch (const Error& error) {
    throw UsageError(std::string("--job evaluate is a process of its own: ") + error.what());
  }
  if (settings.supervisor.logdir.empty()) {
    throw UsageError("--job evaluate needs the --logdir of a training");
  }
  setenv("RONDE_ALONE", "1", 1);  // wherever it was started from
}

// What a user may leave to the model and the optimiser.
struct Automatic {
  std::optional<std::size_t> epochs;
  std::optional<double> rate;
  std::optional<ScheduleOptions::Kind> schedule;
  std::optional<double> weight_decay;
};

void check_steps(const Automatic& given, const TrainingDefaults& defaults, StepSettings& settings) {
  RuleOptions& optimizer = settings.optimizer.rule;
  const bool sgd = optimizer.kind == RuleOptions::Kind::kSgd;
  if (optimizer.nesterov && (!sgd || optimizer.momentum == 0.0)) {
    throw UsageError(
        "--nesterov on looks along the momentum of sgd: use --optimizer sgd and a --momentum above "
        "0");
  }
  if (!sgd) optimizer.momentum = 0.0;
  optimizer.weight_decay = given.weight_decay;
  ScheduleOptions& schedule = settings.optimizer.schedule;
  settings.epochs = given.epochs.value_or(defaults.epochs);
  schedule.kind = given.schedule.value_or(defaults.schedule);
  schedule.learning_rate = given.rate.value_or(sgd ? defaults.sgd_rate : defaults.adam_rate);
}

}  // namespace

void add_supervisor_flags(FlagTable& table, SupervisorOptions& chief) {
  table.add(
      {{"logdir", text(chief.logdir),
        "directory of rank 0 for checkpoints, TensorBoard's event files and metrics.jsonl; a "
        "training that is started again goes on from the last checkpoint there"},
       {"save-seconds", seconds(chief.save_model_secs),
        "write a checkpoint each so many seconds; 0: not by time"},
       {"save-steps", whole(chief.save_steps, 0, kMany),
        "write a checkpoint each so many steps; 0: not by steps"},
       {"keep", whole(chief.keep, 1, 1'000'000),
        "keep so many of the last checkpoints, and the best one"},
       {"save-timeout", positive(chief.save_timeout, 1e9),
        "seconds that the disk has for the last checkpoint"},
       {"save-on-failure", on_off(chief.save_on_failure),
        "save what the last step came to when another rank has died: on, off"},
       {"after-save", text(chief.after_save),
        "shell command for each checkpoint, whose path is in RONDE_CHECKPOINT"},
       {"restore", text(chief.restore),
        "go on from a checkpoint of --logdir: auto (the newest, where there is one), must, never "
        "(begin anew), best, step-N, or the path of one elsewhere"},
       {"accept-changes", on_off(chief.accept_changes),
        "go on also with flags that make it another training: off, on"},
       {"max-seconds", seconds(chief.max_seconds),
        "save and stop after so many seconds; 0: never, but before the end of Slurm's job"},
       {"stopped-exit-code", whole(chief.stopped_exit_code, 0, 255),
        "exit code of a training that was stopped and saved before its end"}});
  table.check([&table, &chief] {
    chief.goal = goal_of(table.values());
    if (!chief.logdir.empty() || chief.restore == "auto" || chief.restore == "never") return;
    throw UsageError("--restore " + chief.restore + " needs a --logdir to go on in");
  });
}

void add_run_flags(FlagTable& table, RunSettings& settings) {
  const Choices<bool> jobs{{"train", false}, {"evaluate", true}};
  table.add(
      {{"seed", whole(settings.seed, 0, UINT64_MAX),
        "seed of the first weights, the order of the samples, and dropout"},
       {"steps", whole(settings.steps, 0, kMany), "stop after so many steps; 0: after all epochs"},
       {"early-stopping", on_off(settings.stop_early),
        "end when the loss on the test images has not fallen for --patience epochs: off, on"},
       {"patience", whole(settings.patience, 1, 100'000),
        "epochs without a gain that early stopping waits for"},
       {"log-every", whole(settings.log_every, 0, kMany),
        "print loss and accuracy of each so many steps, over all ranks; 0: never, and --logdir has "
        "every 50th"},
       {"verbose", on_where_named(settings.verbose),
        "print what the strategy has chosen, and the table of ranks, at the start"},
       {"plot", text(settings.plot),
        "write the loss of each epoch as a picture to this file (SVG)"},
       {"job", one_of(settings.evaluates, jobs),
        "train; or evaluate: score each checkpoint that appears in --logdir, beside the training, "
        "as a process of its own without mpirun"},
       {"idle-seconds", positive(settings.idle_seconds, 1e9),
        "evaluate: end after so many seconds without a new checkpoint or a sign of a training"}});
  add_supervisor_flags(table, settings.supervisor);
  table.check([&table, &settings] { check_run(table, settings); });
}

// A table: its length is its rows'.
// NOLINTNEXTLINE(readability-function-size)
void add_step_flags(FlagTable& table, StepSettings& settings,
                    std::function<TrainingDefaults()> defaults) {
  using Optimizers = Choices<RuleOptions::Kind>;
  using Kind = ScheduleOptions::Kind;
  const auto given = std::make_shared<Automatic>();
  RuleOptions& optimizer = settings.optimizer.rule;
  OptimizerOptions& how = settings.optimizer;
  const auto schedules = [](Kind& target) {
    FlagValue value = one_of(target, Choices<Kind>{{"constant", Kind::kConstant},
                                                   {"step", Kind::kStep},
                                                   {"cosine", Kind::kCosine},
                                                   {"linear", Kind::kLinear}});
    value.valid.insert(value.valid.find(':') + 1, " auto");
    return value;
  };
  const auto decay = [](double& target) {
    return real(
        target, [](double value) { return value >= 0.0 && value <= 1.0; }, "a number from 0 to 1");
  };
  table.add(
      {{"epochs", automatic(given->epochs, [](auto& target) { return whole(target, 1, 100'000); }),
        "passes over the training data; auto: what the model needs"},
       {"global-batch", whole(settings.global_batch, 1, 1'000'000),
        "samples of an optimiser's step, all ranks and micro-batches together"},
       {"learning-rate",
        automatic(given->rate, [](auto& target) { return positive(target, 100.0); }),
        "step size; auto: what suits the model and the optimiser"},
       {"momentum", share(optimizer.momentum), "sgd: share of the last step that is kept"},
       {"nesterov", on_off(optimizer.nesterov), "sgd: look ahead along the momentum: off, on"},
       {"optimizer",
        one_of(optimizer.kind, Optimizers{{"sgd", RuleOptions::Kind::kSgd},
                                          {"adam", RuleOptions::Kind::kAdam},
                                          {"adamw", RuleOptions::Kind::kAdamW}}),
        "how to step: sgd, adam or adamw"},
       {"weight-decay", automatic(given->weight_decay, decay),
        "how weights shrink; auto: 0, and 0.01 for adamw"},
       {"schedule", automatic(given->schedule, schedules),
        "the learning rate over the steps: constant, step (a tenth of it after each third of the "
        "steps), cosine or linear (down to 0); auto: what suits the model"},
       {"warmup", whole(how.schedule.warmup, 0, kMany),
        "steps in which the learning rate rises from 0"},
       {"accumulate", whole(how.accumulate, 1, 100'000),
        "micro-batches of a step on each rank: the ranks sum gradients after the last"},
       {"clip",
        real(
            how.clip_norm, [](double value) { return value >= 0.0; }, "0 or a number above it"),
        "largest norm of the averaged gradient; 0: whatever it is"},
       {"wire",
        one_of(how.wire, Choices<Compression>{{"f32", Compression::kNone},
                                              {"f16", Compression::kF16},
                                              {"bf16", Compression::kBf16}}),
        "the gradients' type on the way: f32, f16 or bf16"},
       {"gradients",
        one_of(how.gradients,
               Choices<Gradients>{{"plain", Gradients::kPlain}, {"board", Gradients::kBoard}}),
        "where gradients lie: plain (memory of the process) or board (shared memory: nothing is "
        "copied in)"},
       {"average",
        one_of(how.average, Choices<Average>{{"gradients", Average::kGradients},
                                             {"weights", Average::kWeights}}),
        "what is averaged over the ranks: gradients, in each step; or weights, each --every steps"},
       {"every", whole(how.every, 1, kMany), "--average weights: steps between two averages"},
       {"overlap", on_off(how.overlap), "submit gradients during backward: on; off: after it"},
       {"bucket-bytes", whole(how.bucket_bytes, 0, std::uint64_t{1} << 40),
        "bytes of gradients that are held back until they leave together"},
       {"shuffle-submission", whole(how.shuffle_seed, 0, UINT64_MAX),
        "test aid: submit the gradients in an order drawn from this seed, another one on every "
        "rank and in every step; 0: as backward produces them"}});
  table.check([given, &settings, defaults = std::move(defaults)] {
    check_steps(*given, defaults(), settings);
  });
}

void finish_schedule(StepSettings& settings, std::size_t steps_per_epoch) {
  ScheduleOptions& schedule = settings.optimizer.schedule;
  schedule.total = steps_per_epoch * settings.epochs;
  schedule.every = (schedule.total + 2) / 3;  // three levels, whatever the rest
  if (schedule.warmup < schedule.total) return;
  throw AgreedError("--warmup " + std::to_string(schedule.warmup) + " is not less than the " +
                        std::to_string(schedule.total) + " steps of the training: use fewer",
                    0);
}

void require_batch(const StepSettings& settings, std::size_t replicas, std::size_t samples) {
  const std::string accumulate = std::to_string(settings.optimizer.accumulate);
  const std::uint64_t parts = replicas * settings.optimizer.accumulate;
  const std::string batch = "--global-batch " + std::to_string(settings.global_batch);
  std::string failure;
  if (settings.global_batch < parts) {
    failure = batch + " is less than " + std::to_string(replicas) + " ranks x --accumulate " +
              accumulate + ": use at least " + std::to_string(parts);
  }
  if (settings.global_batch > samples) {
    failure = batch + " is larger than the training data: use at most " + std::to_string(samples);
  }
  if (!failure.empty()) throw AgreedError(failure, 0, kExitConfiguration);
}

}  // namespace ronde::trainer
