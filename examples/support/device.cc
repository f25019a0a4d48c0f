// SPDX-License-Identifier: Apache-2.0
// What a learner on a device can do, and opening one.
#include "examples/support/device.h"

#include <utility>

#include "bindings/trainer/fit/agreement.h"
#include "examples/gpu/device_learner.h"
#include "examples/gpu/no_device.h"
#include "examples/gpu/trainer_math.h"

namespace ronde::examples {

namespace {

void refuse(const trainer::FlagTable& flags, const std::string& model,
            const trainer::StepSettings& step, const trainer::RunSettings& run) {
  using Schedule = trainer::ScheduleOptions::Kind;
  const auto given = flags.values_of({"threads", "strategy"});
  const trainer::OptimizerOptions& how = step.optimizer;
  const std::pair<const char*, bool> asked[]{
      {"--model cnn", model != "mlp"},
      {"--shuffle-submission", how.shuffle_seed != 0},
      {"--accumulate", how.accumulate != 1},
      {"--clip", how.clip_norm != 0.0},
      {"--wire", how.wire != Compression::kNone},
      {"--gradients", how.gradients != trainer::OptimizerOptions().gradients},
      {"--overlap", !how.overlap},
      {"--bucket-bytes", how.bucket_bytes != trainer::OptimizerOptions{}.bucket_bytes},
      {"--schedule", how.schedule.kind != Schedule::kConstant},
      {"--warmup", how.schedule.warmup != 0},
      {"--threads", given[0].second != "1"},
      {"--strategy", given[1].second != "multiworker"},
      {"--log-every", run.log_every != 0},
      {"--logdir", !run.supervisor.logdir.empty()},
      {"--early-stopping", run.stop_early},
      {"--optimizer", step.optimizer.rule.kind != trainer::RuleOptions::Kind::kSgd},
      {"--nesterov", step.optimizer.rule.nesterov},
      {"--weight-decay", step.optimizer.rule.weight_decay.has_value()}};
  for (const auto& [flag, wrong] : asked) {
    if (!wrong) continue;
    throw trainer::UsageError(std::string(flag) +
                              " is for training in host memory: leave it out with --device cuda");
  }
}

}  // namespace

void add_device_flag(trainer::FlagTable& flags, std::unique_ptr<trainer::DeviceMath>& math,
                     const std::string& model, const trainer::StepSettings& step,
                     const trainer::RunSettings& run) {
  const auto device = std::make_shared<std::string>("cpu");
  flags.add(
      {{"device", trainer::one_of(*device, {"cpu", "cuda"}),
        "where to train: cpu, or cuda (mlp: a GPU; the ranks of a host take them in turns)"}});
  flags.check([&, device] {
    if (*device == "cpu") return;
    refuse(flags, model, step, run);
    try {
      math = open_cuda_math();
    } catch (const NoDevice& error) {
      throw trainer::UsageError("--device " + *device + ": " + error.what() +
                                ", or use --device cpu");
    }
  });
}

int train_on_device(trainer::Strategy& strategy, trainer::DeviceMath& math,
                    const trainer::Network& model, const trainer::StepSettings& step,
                    const trainer::FashionMnist& images, const trainer::Training& training,
                    const trainer::RunSettings& run) {
  const trainer::DeviceSgd sgd{step.optimizer.schedule.learning_rate, step.optimizer.rule.momentum};
  const auto codes = strategy.run([&](trainer::Replica& here) {
    std::unique_ptr<trainer::DeviceLearner> learner;
    trainer::succeed_on_all(here, [&] {
      learner =
          std::make_unique<trainer::DeviceLearner>(here.engine(), math, model, sgd, images.train);
      learner->evaluate_on(images.test);
    });
    return trainer::train(here, *learner, training, run);
  });
  return codes.values().front();
}

}  // namespace ronde::examples
