// SPDX-License-Identifier: Apache-2.0
// Trains a small network on Fashion-MNIST, alone or on all ranks of an MPI job. The result depends
// on the number of ranks only through rounding: a global batch is the same samples for any number.
#include <cinttypes>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "bindings/trainer/agreement.h"
#include "bindings/trainer/dataset.h"
#include "bindings/trainer/device_learner.h"
#include "bindings/trainer/errors.h"
#include "bindings/trainer/fit.h"
#include "bindings/trainer/host_learner.h"
#include "bindings/trainer/progress.h"
#include "bindings/trainer/tensor.h"
#include "examples/gpu/no_device.h"
#include "examples/gpu/trainer_math.h"
#include "examples/support/command_line.h"
#include "examples/support/job.h"

namespace {

namespace trainer = ronde::trainer;

constexpr const char* kName = "train_fashion_mnist";
constexpr std::size_t kHidden = 128;

struct Settings {
  std::string data;
  trainer::FitOptions fit;
  trainer::SgdOptions sgd;
  std::string device;
  int threads = 1;
  std::uint64_t shuffle_submission = 0;
  trainer::Flags flags;
};

void add_flags(ronde::examples::CommandLine& line) {
  line.add_flag("data", trainer::kFashionMnistDirectory,
                "directory with the four IDX files of the data set");
  line.add_flag("model", "mlp", "what to train: mlp (784-128-10)");
  line.add_flag("device", "cpu",
                "where to train: cpu, or cuda (a GPU; the ranks of a host take "
                "them in turns)");
  line.add_flag("epochs", "10", "passes over the training data");
  line.add_flag("global-batch", "128", "samples of a step, all ranks together");
  line.add_flag("learning-rate", "0.02", "step size");
  line.add_flag("momentum", "0.9", "share of the last step that is kept");
  line.add_flag("optimizer", "sgd", "how to step: sgd");
  line.add_flag("seed", "1", "seed of the first weights and of the order of the samples");
  line.add_flag("threads", "1", "threads of a rank's matrix products");
  line.add_flag("shuffle-submission", "0",
                "test aid: submit the gradients in an order drawn from this seed, another one on "
                "every rank and in every step; 0: as backward produces them");
}

// Returns false if the user only asked for help or for the version.
bool read_settings(int argc, char** argv, Settings& settings) {
  constexpr std::uint64_t kAnySeed = UINT64_MAX;
  ronde::examples::CommandLine line(kName, "Trains a network on Fashion-MNIST with Ronde.");
  add_flags(line);
  if (!line.parse(argc, argv)) return false;
  settings.data = line.text("data");
  (void)line.choice("model", {"mlp"});
  settings.device = line.choice("device", {"cpu", "cuda"});
  settings.fit.epochs = line.integer("epochs", 1, 100'000);
  settings.fit.global_batch = line.integer("global-batch", 1, 1'000'000);
  settings.sgd.learning_rate = line.real(
      "learning-rate", [](double value) { return value > 0.0 && value <= 100.0; },
      "a number above 0 and at most 100");
  settings.sgd.momentum = line.real(
      "momentum", [](double value) { return value >= 0.0 && value < 1.0; },
      "a number from 0 to below 1");
  (void)line.choice("optimizer", {"sgd"});
  settings.fit.seed = line.integer("seed", 0, kAnySeed);
  settings.threads = static_cast<int>(line.integer("threads", 1, 256));
  settings.shuffle_submission = line.integer("shuffle-submission", 0, kAnySeed);
  if (settings.device != "cpu" && settings.shuffle_submission != 0) {
    throw ronde::examples::UsageError(
        "--shuffle-submission is for gradients in host memory: leave it out with --device " +
        settings.device);
  }
  settings.flags = line.flags();
  return true;
}

// Loads the data on every rank; either all ranks have it or all of them fail.
trainer::FashionMnist load(ronde::Engine& engine, const Settings& settings) {
  trainer::FashionMnist data;
  std::string failure;
  try {
    data = trainer::load_fashion_mnist(settings.data);
    if (settings.fit.global_batch > data.train.size()) {
      failure = "--global-batch " + std::to_string(settings.fit.global_batch) +
                " is larger than the training data: use at most " +
                std::to_string(data.train.size());
    }
  } catch (const trainer::DataError& error) {
    failure = error.what();
  }
  trainer::require_success(engine, failure);
  return data;
}

ronde_statistics difference(const ronde_statistics& after, const ronde_statistics& before) {
  ronde_statistics result = after;
  result.batches -= before.batches;
  result.tensors -= before.tensors;
  result.control_bytes -= before.control_bytes;
  return result;
}

double ratio(std::uint64_t numerator, std::uint64_t denominator) {
  return denominator == 0 ? 0.0 : static_cast<double>(numerator) / static_cast<double>(denominator);
}

// Prints shares of the time of rank 0: it is all computing or waiting; a transfer may go on beside
// either.
void print_result(const ronde::Engine& engine, const Settings& settings,
                  const trainer::FitResult& fit, double accuracy, const std::string& hash,
                  const ronde_statistics& used) {
  std::printf(
      "ranks=%d epochs=%zu train_loss=%.9g test_accuracy=%.4f seconds=%.3f "
      "images_per_second=%.0f param_hash=%s batches=%" PRIu64
      " tensors_per_batch=%.2f control_bytes_per_step=%.1f compute_share=%.3f wait_share=%.3f"
      " transfer_share=%.3f\n",
      engine.size(), settings.fit.epochs, fit.train_loss, accuracy, fit.seconds,
      static_cast<double>(fit.images) / fit.seconds, hash.c_str(), used.batches,
      ratio(used.tensors, used.batches), ratio(used.control_bytes, fit.steps),
      1.0 - fit.wait_seconds / fit.seconds, fit.wait_seconds / fit.seconds,
      fit.transfer_seconds / fit.seconds);
  std::fflush(stdout);
}

// Makes the learner for the device that the user chose; `math` is null for host memory.
std::unique_ptr<trainer::Learner> make_learner(ronde::Engine& engine, const Settings& settings,
                                               trainer::DeviceMath* math, trainer::Model& model) {
  if (math != nullptr) {
    return std::make_unique<trainer::DeviceLearner>(engine, *math, model, settings.sgd);
  }
  return std::make_unique<trainer::HostLearner>(engine, model, settings.sgd,
                                                settings.shuffle_submission);
}

void train(ronde::Engine& engine, const Settings& settings, trainer::DeviceMath* math,
           trainer::Model& model) {
  const trainer::FashionMnist data = load(engine, settings);
  const auto learner = make_learner(engine, settings, math, model);
  const bool speaks = engine.rank() == 0;
  trainer::Progress progress(
      speaks ? &std::cout : nullptr,
      speaks && ronde::examples::stderr_is_terminal() ? &std::cerr : nullptr);

  const ronde_statistics before = engine.statistics();
  const trainer::FitResult fit = trainer::fit(engine, *learner, data.train, settings.fit, progress);
  const ronde_statistics used = difference(engine.statistics(), before);

  const double accuracy = trainer::evaluate(engine, *learner, data.test);
  const std::string hash = learner->parameter_hash();
  trainer::require_same_parameters(engine, hash);
  if (speaks) print_result(engine, settings, fit, accuracy, hash, used);
}

// Opens the device of --device; returns null for the CPU.
std::unique_ptr<trainer::DeviceMath> open_device(const std::string& device) {
  if (device == "cpu") return nullptr;
  try {
    return ronde::examples::open_cuda_math();
  } catch (const ronde::examples::NoDevice& error) {
    throw ronde::examples::UsageError("--device " + device + ": " + error.what() +
                                      ", or use --device cpu");
  }
}

void run(int argc, char** argv) {
  Settings settings;
  if (!read_settings(argc, argv, settings)) return;
  trainer::set_blas_threads(settings.threads);
  // This is opened before the engine, which takes the same device, and closed after it, since the
  // engine may still work there.
  const std::unique_ptr<trainer::DeviceMath> math = open_device(settings.device);
  // The model outlives the engine, which may still read its gradients until it is closed.
  trainer::Model model = trainer::make_mlp(784, kHidden, 10, settings.fit.seed);
  ronde::examples::run_rank(kName, settings.flags, [&](ronde::Engine& engine) {
    train(engine, settings, math.get(), model);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return ronde::examples::run_program(kName, [argc, argv] { run(argc, argv); });
}
