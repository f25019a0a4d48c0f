// SPDX-License-Identifier: Apache-2.0
// Reading how a training job steps.
#include "examples/support/training_flags.h"

#include <algorithm>
#include <map>

namespace ronde::examples {

namespace {

constexpr const char* kAuto = "auto";

double rate_or_auto(const CommandLine& line, double by_itself) {
  if (line.text("learning-rate") == kAuto) return by_itself;
  return line.positive("learning-rate", 100.0);
}

trainer::OptimizerOptions read_optimizer(const CommandLine& line) {
  using Kind = trainer::OptimizerOptions::Kind;
  const std::map<std::string, Kind> kinds{
      {"sgd", Kind::kSgd}, {"adam", Kind::kAdam}, {"adamw", Kind::kAdamW}};
  trainer::OptimizerOptions options;
  options.kind = kinds.at(line.choice("optimizer", {"sgd", "adam", "adamw"}));
  options.momentum = line.share("momentum");
  options.nesterov = line.choice("nesterov", {"off", "on"}) == "on";
  if (options.nesterov && (options.kind != Kind::kSgd || options.momentum == 0.0)) {
    throw UsageError(
        "--nesterov on looks along the momentum of sgd: use --optimizer sgd and a "
        "--momentum above 0");
  }
  if (options.kind != Kind::kSgd) options.momentum = 0.0;
  if (line.text("weight-decay") != kAuto) {
    options.weight_decay = line.real(
        "weight-decay", [](double value) { return value >= 0.0 && value <= 1.0; },
        "a number from 0 to 1");
  }
  return options;
}

trainer::ScheduleOptions read_schedule(const CommandLine& line, const TrainingDefaults& defaults,
                                       trainer::OptimizerOptions::Kind optimizer) {
  using Kind = trainer::ScheduleOptions::Kind;
  const std::map<std::string, Kind> kinds{{"constant", Kind::kConstant},
                                          {"step", Kind::kStep},
                                          {"cosine", Kind::kCosine},
                                          {"linear", Kind::kLinear}};
  const std::string wanted =
      line.choice("schedule", {kAuto, "constant", "step", "cosine", "linear"});
  trainer::ScheduleOptions schedule;
  schedule.kind = kinds.at(wanted == kAuto ? defaults.schedule : wanted);
  schedule.learning_rate =
      rate_or_auto(line, optimizer == trainer::OptimizerOptions::Kind::kSgd ? defaults.sgd_rate
                                                                            : defaults.adam_rate);
  schedule.warmup = line.integer("warmup", 0, 1'000'000'000);
  return schedule;
}

}  // namespace

void add_training_flags(CommandLine& line) {
  line.add_flag("epochs", kAuto, "passes over the training data; auto: what the model needs");
  line.add_flag("global-batch", "128",
                "samples of an optimiser's step, all ranks and micro-batches together");
  line.add_flag("learning-rate", kAuto, "step size; auto: what suits the model and the optimiser");
  line.add_flag("momentum", "0.9", "sgd: share of the last step that is kept");
  line.add_flag("nesterov", "off", "sgd: look ahead along the momentum: off, on");
  line.add_flag("optimizer", "sgd", "how to step: sgd, adam or adamw");
  line.add_flag("weight-decay", kAuto, "how weights shrink; auto: 0, and 0.01 for adamw");
  line.add_flag("schedule", kAuto,
                "the learning rate over the steps: constant, step (a tenth of it after each third "
                "of the steps), cosine or linear (down to 0); auto: what suits the model");
  line.add_flag("warmup", "0", "steps in which the learning rate rises from 0");
  line.add_flag("accumulate", "1",
                "micro-batches of a step on each rank: the ranks sum gradients after the last");
  line.add_flag("clip", "0", "largest norm of the averaged gradient; 0: whatever it is");
  line.add_flag("wire", "f32", "the gradients' type on the way: f32, f16 or bf16");
  line.add_flag("gradients", "plain",
                "where gradients lie: plain (memory of the process) or board (shared memory: "
                "nothing is copied in)");
  line.add_flag("overlap", "on", "submit gradients during backward: on; off: after it");
  line.add_flag("bucket-bytes", "1048576",
                "bytes of gradients that are held back until they leave together");
  line.add_flag("seed", "1", "seed of the first weights, the order of the samples, and dropout");
  line.add_flag("threads", "1", "threads of a rank's computing");
  line.add_flag("shuffle-submission", "0",
                "test aid: submit the gradients in an order drawn from this seed, another one on "
                "every rank and in every step; 0: as backward produces them");
}

TrainingSettings read_training_flags(const CommandLine& line, const TrainingDefaults& defaults) {
  TrainingSettings settings;
  settings.epochs = line.text("epochs") == kAuto
                        ? defaults.epochs
                        : static_cast<std::size_t>(line.integer("epochs", 1, 100'000));
  settings.global_batch = line.integer("global-batch", 1, 1'000'000);
  settings.seed = line.integer("seed", 0, UINT64_MAX);
  settings.threads = static_cast<int>(line.integer("threads", 1, 256));
  settings.optimizer = read_optimizer(line);
  trainer::DistributedOptions& how = settings.distributed;
  how.schedule = read_schedule(line, defaults, settings.optimizer.kind);
  how.accumulate = line.integer("accumulate", 1, 100'000);
  how.clip_norm =
      line.real("clip", [](double value) { return value >= 0.0; }, "0 or a number above it");
  const std::string wire = line.choice("wire", {"f32", "f16", "bf16"});
  how.wire = wire == "f16"    ? Compression::kF16
             : wire == "bf16" ? Compression::kBf16
                              : Compression::kNone;
  how.gradients = line.choice("gradients", {"plain", "board"}) == "board"
                      ? trainer::Gradients::kBoard
                      : trainer::Gradients::kPlain;
  how.overlap = line.choice("overlap", {"on", "off"}) == "on";
  how.bucket_bytes = line.integer("bucket-bytes", 0, std::uint64_t{1} << 40);
  how.shuffle_seed = line.integer("shuffle-submission", 0, UINT64_MAX);
  return settings;
}

void finish_schedule(TrainingSettings& settings, std::size_t steps_per_epoch) {
  trainer::ScheduleOptions& schedule = settings.distributed.schedule;
  schedule.total = steps_per_epoch * settings.epochs;
  schedule.every = (schedule.total + 2) / 3;  // three levels, whatever the rest
  if (schedule.warmup >= schedule.total) {
    throw trainer::AgreedError("--warmup " + std::to_string(schedule.warmup) +
                                   " is not less than the " + std::to_string(schedule.total) +
                                   " steps of the training: use fewer",
                               0);
  }
}

std::string too_small_batch(const TrainingSettings& settings, int ranks) {
  const std::uint64_t parts = static_cast<std::uint64_t>(ranks) * settings.distributed.accumulate;
  if (settings.global_batch >= parts) return "";
  return "--global-batch " + std::to_string(settings.global_batch) + " is less than " +
         std::to_string(ranks) + " ranks x --accumulate " +
         std::to_string(settings.distributed.accumulate) + ": use at least " +
         std::to_string(parts);
}

}  // namespace ronde::examples
