// SPDX-License-Identifier: Apache-2.0
// Learns y = 2 x + 10 from noisy samples, of which every rank draws its own: a line on the tape,
// and the smallest loop around DistributedOptimizer.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/loop/agreement.h"
#include "bindings/trainer/loop/progress.h"
#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/nn/model.h"
#include "bindings/trainer/optim/distributed_optimizer.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/random.h"
#include "bindings/trainer/tensor/tape.h"
#include "examples/support/command_line.h"
#include "examples/support/job.h"

namespace {

namespace trainer = ronde::trainer;

constexpr const char* kName = "linear_regression";
constexpr float kWeight = 2.0F;
constexpr float kBias = 10.0F;
constexpr float kNoise = 0.5F;  // uniform from -kNoise to kNoise

struct Settings {
  std::uint64_t steps = 0;
  std::uint64_t steps_to_validate = 0;
  std::uint64_t batch = 0;
  double learning_rate = 0.0;
  double momentum = 0.0;
  std::uint64_t seed = 0;
  trainer::Flags flags;
};

// Returns false if the user only asked for help or for the version.
bool read_settings(int argc, char** argv, Settings& settings) {
  ronde::examples::CommandLine line(kName, "Learns y = 2 x + 10 from noisy samples with Ronde.");
  line.add_flag("steps", "500", "steps down the gradient");
  line.add_flag("steps-to-validate", "50", "print the line and the loss after so many steps");
  line.add_flag("batch", "64", "samples of a rank in a step");
  line.add_flag("learning-rate", "0.05", "step size");
  line.add_flag("momentum", "0", "share of the last step that is kept");
  line.add_flag("seed", "1", "seed of the first weight and of the samples");
  if (!line.parse(argc, argv)) return false;
  settings.steps = line.integer("steps", 1, 10'000'000);
  settings.steps_to_validate = line.integer("steps-to-validate", 1, 10'000'000);
  settings.batch = line.integer("batch", 1, 1'000'000);
  settings.learning_rate = line.positive("learning-rate", 1.0);
  settings.momentum = line.share("momentum");
  settings.seed = line.integer("seed", 0, UINT64_MAX);
  settings.flags = line.flags();
  return true;
}

// As many samples as one step of all ranks takes, new ones in each repetition.
trainer::Dataset noisy_line(std::uint64_t seed, std::size_t samples) {
  const trainer::SampleFormat format{.shape = {1}, .classes = 0, .targets = 1};
  const auto draw = [seed, samples](std::uint64_t step, std::size_t index,
                                    const trainer::SampleRoom& room) {
    trainer::Generator generator(seed, step * samples + index);
    const float x = generator.uniform(-1.0F, 1.0F);
    room.input[0] = x;
    room.targets[0] = kWeight * x + kBias + generator.uniform(-kNoise, kNoise);
    return true;
  };
  return trainer::Dataset::from_generator(format, draw, samples);
}

// Takes all steps. The chief prints the line on the way, with the loss over the samples of all
// ranks.
void descend(trainer::Replica& replica, const Settings& settings, const trainer::Model& model,
             trainer::DistributedOptimizer& optimizer) {
  const auto ranks = static_cast<std::size_t>(replica.size());
  const float& weight = model.parameters()[0]->value()[0];
  const float& bias = model.parameters()[1]->value()[0];
  trainer::Epoch batches = noisy_line(settings.seed, settings.batch * ranks)
                               .repeat(settings.steps)
                               .batch(settings.batch * ranks)
                               .shard(static_cast<std::size_t>(replica.rank()), ranks)
                               .epoch(0);
  trainer::Tape tape;
  while (const trainer::StepBatch* batch = batches.next()) {
    const trainer::Batch& part = batch->parts.front();
    tape.begin();
    const trainer::Loss loss = mean_squared_error(model(tape.borrow(part.shape, part.inputs)),
                                                  part.targets, batch->global_size);
    optimizer.backward(tape, loss);
    optimizer.step();
    const std::size_t step = batch->step + 1;
    if (step % settings.steps_to_validate != 0 && step != settings.steps) continue;
    std::array<double, 1> total{loss.sum};
    replica.allreduce("loss", total, trainer::Reduction::kSum);
    if (!replica.is_chief()) continue;
    std::printf("step %zu/%ju: weight %.4f, bias %.4f, loss %.6g\n", step,
                std::uintmax_t{settings.steps}, weight, bias,
                total[0] / static_cast<double>(batch->global_size));
  }
}

void train(ronde::Engine& engine, const Settings& settings, trainer::Linear& line) {
  trainer::EngineReplica replica(engine);
  const trainer::Model model(line);
  trainer::Sgd sgd(model.parameters(), {.momentum = settings.momentum});
  trainer::DistributedOptions options;
  options.schedule.learning_rate = settings.learning_rate;
  trainer::DistributedOptimizer optimizer(engine, model.parameters(), {}, sgd, options);
  optimizer.broadcast_state();

  const double start = trainer::steady_seconds();
  bool finite = true;
  try {
    descend(replica, settings, model, optimizer);
  } catch (const trainer::NotFinite&) {
    finite = false;  // on every rank
  }
  const double seconds = trainer::steady_seconds() - start;

  const float weight = model.parameters()[0]->value()[0];
  const float bias = model.parameters()[1]->value()[0];
  if (!finite || !std::isfinite(weight) || !std::isfinite(bias)) {
    throw trainer::AgreedError(
        "the line is not finite any more: use a smaller learning rate or momentum", 0,
        trainer::kExitConfiguration);
  }
  const std::string hash = model.parameter_hash();
  trainer::require_same_parameters(replica, hash);
  if (!replica.is_chief()) return;
  std::printf("ranks=%d weight=%.6f bias=%.6f seconds=%.3f param_hash=%s\n", engine.size(), weight,
              bias, seconds, hash.c_str());
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Settings settings;
  if (!read_settings(argc, argv, settings)) return 0;
  // The line outlives the engine, which may still read its gradients until it is closed.
  trainer::Linear line("line", 1, 1, trainer::Initialization::kGlorot, settings.seed);
  return ronde::examples::run_rank(kName, settings.flags, [&](ronde::Engine& engine) {
    train(engine, settings, line);
    return 0;
  });
}

}  // namespace

int main(int argc, char** argv) {
  return ronde::examples::run_program(kName, [argc, argv] { return run(argc, argv); });
}
