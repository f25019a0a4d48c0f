// SPDX-License-Identifier: Apache-2.0
// Learns y = 2 x + 10 from noisy samples; every rank draws samples of its own. The smallest
// training loop on Ronde, with the layers of bindings/trainer but a loss written out here.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include "bindings/trainer/agreement.h"
#include "bindings/trainer/distributed_optimizer.h"
#include "bindings/trainer/errors.h"
#include "bindings/trainer/model.h"
#include "bindings/trainer/progress.h"
#include "bindings/trainer/random.h"
#include "bindings/trainer/sgd.h"
#include "examples/support/command_line.h"
#include "examples/support/job.h"

namespace {

namespace trainer = ronde::trainer;

constexpr const char* kName = "linear_regression";
constexpr float kWeight = 2.0F;
constexpr float kBias = 10.0F;
constexpr float kNoise = 0.5F;  // uniform from -kNoise to kNoise
constexpr std::uint64_t kReports = 10;

struct Settings {
  std::uint64_t steps = 0;
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
  line.add_flag("batch", "64", "samples of a rank in a step");
  line.add_flag("learning-rate", "0.05", "step size");
  line.add_flag("momentum", "0", "share of the last step that is kept");
  line.add_flag("seed", "1", "seed of the first weight and, with the rank, of the samples");
  if (!line.parse(argc, argv)) return false;
  settings.steps = line.integer("steps", 1, 10'000'000);
  settings.batch = line.integer("batch", 1, 1'000'000);
  settings.learning_rate = line.real(
      "learning-rate", [](double value) { return value > 0.0 && value <= 1.0; },
      "a number above 0 and at most 1");
  settings.momentum = line.real(
      "momentum", [](double value) { return value >= 0.0 && value < 1.0; },
      "a number from 0 to below 1");
  settings.seed = line.integer("seed", 0, UINT64_MAX);
  settings.flags = line.flags();
  return true;
}

// Draws new samples for this rank.
void draw(trainer::Generator& generator, trainer::Matrix& x, trainer::Matrix& y) {
  for (std::size_t i = 0; i < x.rows(); ++i) {
    x.data()[i] = generator.uniform(-1.0F, 1.0F);
    y.data()[i] = kWeight * x.data()[i] + kBias + generator.uniform(-kNoise, kNoise);
  }
}

// Computes this rank's part of the gradient of the mean squared error over all ranks' samples.
void loss_gradient(const trainer::Matrix& prediction, const trainer::Matrix& y, int ranks,
                   trainer::Matrix& gradient) {
  const float count = static_cast<float>(y.rows()) * static_cast<float>(ranks);
  gradient.resize(y.rows(), 1);
  for (std::size_t i = 0; i < y.rows(); ++i) {
    gradient.data()[i] = 2.0F * (prediction.data()[i] - y.data()[i]) / count;
  }
}

void train(ronde::Engine& engine, const Settings& settings, trainer::Model& model) {
  trainer::Sgd sgd(model, settings.learning_rate, settings.momentum);
  trainer::DistributedOptimizer optimizer(engine, model, sgd);
  const auto ready = [&optimizer](const trainer::Parameter& gradient) {
    optimizer.gradient_ready(gradient);
  };
  const float& weight = model.parameters()[0]->value.values()[0];
  const float& bias = model.parameters()[1]->value.values()[0];

  trainer::Generator generator(settings.seed, static_cast<std::uint64_t>(engine.rank()));
  trainer::Matrix x(settings.batch, 1);
  trainer::Matrix y(settings.batch, 1);
  trainer::Matrix gradient;
  optimizer.broadcast_state();
  const double start = trainer::steady_seconds();
  for (std::uint64_t step = 1; step <= settings.steps; ++step) {
    draw(generator, x, y);
    loss_gradient(model.forward(x), y, engine.size(), gradient);
    model.backward(x, gradient, ready);
    optimizer.step();
    const std::uint64_t interval = (settings.steps + kReports - 1) / kReports;
    if (engine.rank() == 0 && (step % interval == 0 || step == settings.steps)) {
      std::printf("step %ju/%ju: weight %.4f, bias %.4f\n", std::uintmax_t{step},
                  std::uintmax_t{settings.steps}, weight, bias);
    }
  }
  const double seconds = trainer::steady_seconds() - start;

  const std::string hash = model.parameter_hash();
  trainer::require_same_parameters(engine, hash);
  if (!std::isfinite(weight) || !std::isfinite(bias)) {
    throw trainer::AgreedError(
        "the line is not finite any more: use a smaller learning rate or momentum", 0);
  }
  if (engine.rank() != 0) return;
  std::printf("ranks=%d weight=%.6f bias=%.6f seconds=%.3f param_hash=%s\n", engine.size(), weight,
              bias, seconds, hash.c_str());
  std::fflush(stdout);
}

void run(int argc, char** argv) {
  Settings settings;
  if (!read_settings(argc, argv, settings)) return;
  trainer::set_blas_threads(1);
  trainer::Model
      model;  // outlives the engine, which may still read its gradients until it is closed
  model.add<trainer::Dense>("line", 1U, 1U, trainer::Initialization::kGlorot, settings.seed);
  ronde::examples::run_rank(kName, settings.flags, [&settings, &model](ronde::Engine& engine) {
    train(engine, settings, model);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return ronde::examples::run_program(kName, [argc, argv] { run(argc, argv); });
}
