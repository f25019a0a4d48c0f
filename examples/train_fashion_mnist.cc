// SPDX-License-Identifier: Apache-2.0
// Trains a network on Fashion-MNIST, alone or on all ranks of an MPI job. The result depends on the
// number of ranks only through rounding: a global batch is the same samples for any number.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/chief/evaluator.h"
#include "bindings/trainer/chief/supervisor.h"
#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/data/fashion_mnist.h"
#include "bindings/trainer/loop/agreement.h"
#include "bindings/trainer/loop/fit.h"
#include "bindings/trainer/loop/host_learner.h"
#include "bindings/trainer/loop/progress.h"
#include "bindings/trainer/nn/models.h"
#include "bindings/trainer/tensor/errors.h"
#include "examples/gpu/device_learner.h"
#include "examples/gpu/no_device.h"
#include "examples/gpu/trainer_math.h"
#include "examples/support/chief_callbacks.h"
#include "examples/support/command_line.h"
#include "examples/support/data.h"
#include "examples/support/fashion_settings.h"
#include "examples/support/job.h"
#include "examples/support/loss_plot.h"
#include "examples/support/result_line.h"

namespace {

namespace trainer = ronde::trainer;
using Settings = ronde::examples::FashionSettings;

constexpr const char* kName = "train_fashion_mnist";
constexpr std::size_t kHidden = 128;
constexpr std::size_t kEvaluationBatch = 500;

// Throws where a batch does not fit the data or the ranks.
void check_batch(const Settings& settings, int ranks, std::size_t samples) {
  std::string failure = too_small_batch(settings.training, ranks);
  if (settings.training.global_batch > samples) {
    failure = "--global-batch " + std::to_string(settings.training.global_batch) +
              " is larger than the training data: use at most " + std::to_string(samples);
  }
  if (failure.empty()) return;
  throw trainer::AgreedError(failure, 0, trainer::kExitConfiguration);
}

// The model, and what it needs of the other ranks once there is an engine.
struct Network {
  std::unique_ptr<trainer::Sequential> layers;
  trainer::Replica* replica = nullptr;
};

void make_network(const Settings& settings, Network& network) {
  const std::uint64_t seed = settings.training.seed;
  if (settings.model == "mlp") {
    network.layers = trainer::make_mlp(784, kHidden, 10, seed);
    return;
  }
  trainer::CnnOptions options;
  options.batch_norm = settings.batch_norm != "off";
  if (settings.batch_norm == "sync") {
    options.sum_over_ranks = [&network](std::span<double> sums) {
      network.replica->allreduce("batch_norm", sums, trainer::Reduction::kSum);
    };
  }
  network.layers = trainer::make_cnn(options, seed);
}

trainer::Loss loss_of(const trainer::Tensor& outputs, const trainer::Batch& batch,
                      std::size_t global_batch) {
  return softmax_cross_entropy(outputs, batch.labels, global_batch);
}

// A learner with all that it refers to.
struct Learning {
  std::unique_ptr<trainer::Optimizer> optimizer;
  std::unique_ptr<trainer::DistributedOptimizer> distributed;
  std::unique_ptr<trainer::Learner> learner;
};

// `math` is null for host memory.
Learning make_learner(ronde::Engine& engine, const Settings& settings, trainer::DeviceMath* math,
                      const trainer::Model& model, const trainer::FashionMnist& data) {
  Learning learning;
  const trainer::OptimizerOptions& how = settings.training.optimizer;
  if (math != nullptr) {
    const trainer::DeviceSgd sgd{settings.training.distributed.schedule.learning_rate,
                                 how.momentum};
    auto learner = std::make_unique<trainer::DeviceLearner>(engine, *math, model, sgd, data.train);
    learner->evaluate_on(data.test);
    learning.learner = std::move(learner);
    return learning;
  }
  learning.optimizer = trainer::make_optimizer(how, model.parameters());
  learning.distributed = std::make_unique<trainer::DistributedOptimizer>(
      engine, model.parameters(), model.statistics(), *learning.optimizer,
      settings.training.distributed);
  learning.learner = std::make_unique<trainer::HostLearner>(
      model, loss_of, *learning.distributed, settings.training.seed, settings.training.threads);
  return learning;
}

trainer::ImageShape shape_of(const Settings& settings) {
  return settings.model == "mlp" ? trainer::ImageShape::kFlat : trainer::ImageShape::kImage;
}

struct Data {
  trainer::Dataset training;
  trainer::Dataset test;
};

Data datasets(const trainer::Replica& replica, const Settings& settings,
              const trainer::FashionMnist& data) {
  const auto rank = static_cast<std::size_t>(replica.rank());
  const auto ranks = static_cast<std::size_t>(replica.size());
  return {trainer::Dataset::from_images(data.train, shape_of(settings))
              .shuffle(settings.training.seed)
              .batch(settings.training.global_batch)
              .shard(rank, ranks, settings.training.distributed.accumulate)
              .prefetch(1),
          trainer::Dataset::from_images(data.test, shape_of(settings))
              .take(settings.test_images)
              .batch(kEvaluationBatch * ranks)
              .shard(rank, ranks)};
}

// Everything of one training on this rank.
struct Training {
  ronde::Engine& engine;
  const Settings& settings;
  trainer::Replica& replica;
  const Data& data;
  const Learning& learning;
  trainer::Supervisor* supervisor;  // null on a device
};

// Trains from where the supervisor stands.
trainer::FitResult fit_from_there(const Training& all, std::vector<double>& losses) {
  const ronde::examples::ChiefSettings& chief = all.settings.chief;
  trainer::Replica& replica = all.replica;
  trainer::Learner& learner = *all.learning.learner;
  std::ostream* const lines = replica.is_chief() ? &std::cout : nullptr;
  trainer::Progress progress(
      lines, lines != nullptr && ronde::examples::stderr_is_terminal() ? &std::cerr : nullptr);
  trainer::LossHistory history;
  trainer::LogSteps log_lines(replica, learner, chief.log_every, lines);
  std::vector<trainer::Callback*> callbacks{&progress, &history, &log_lines};
  trainer::FitOptions options;
  options.epochs = all.settings.training.epochs;
  options.most_steps = all.settings.steps;
  std::optional<ronde::examples::ChiefCallbacks> duties;
  if (all.supervisor != nullptr) {
    duties.emplace(all.engine, replica, learner, *all.supervisor, chief,
                   all.settings.training.distributed.schedule);
    duties->add_to(callbacks, options);
  }
  const trainer::Dataset* validation = chief.patience != 0 ? &all.data.test : nullptr;
  const trainer::FitResult result =
      trainer::fit(replica, learner, all.data.training, options, callbacks, validation);
  losses = history.losses();
  return result;
}

void print_on_chief(const trainer::Replica& replica, const std::string& line) {
  if (replica.is_chief()) std::cout << line << '\n' << std::flush;
}

// The result line; empty: it was stopped before the end.
std::optional<std::string> train_and_score(const Training& all) {
  const ronde_statistics before = all.engine.statistics();
  std::vector<double> losses;
  ronde::examples::TrainingResult result;
  result.ranks = all.replica.size();
  result.epochs = all.settings.training.epochs;
  result.fit = fit_from_there(all, losses);
  if (result.fit.cut_short) return std::nullopt;
  result.used = ronde::examples::difference(all.engine.statistics(), before);
  result.train_loss = result.fit.training.loss();
  if (result.fit.steps == 0 && all.supervisor != nullptr) {
    result.train_loss = trainer::loss_before(*all.supervisor);
  }
  trainer::Learner& learner = *all.learning.learner;
  result.test_accuracy = trainer::evaluate(all.replica, learner, all.data.test).accuracy();
  result.parameter_hash = learner.parameter_hash();
  trainer::require_same_parameters(all.replica, result.parameter_hash);
  trainer::succeed_on_all(all.replica, [&] {
    if (!all.settings.plot.empty() && all.replica.is_chief()) {
      ronde::examples::plot_losses(all.settings.plot, losses);
    }
  });
  return ronde::examples::result_line(result);
}

int supervise(Training& all, const trainer::Model& model) {
  trainer::SupervisorOptions duties = all.settings.chief.supervisor;
  duties.flags = {{"--model", all.settings.model},
                  {"--batch-norm", all.settings.batch_norm},
                  {"--seed", std::to_string(all.settings.training.seed)},
                  {"data", all.data.training.settings()}};
  trainer::Supervisor supervisor(all.replica, model, *all.learning.distributed, duties);
  all.supervisor = &supervisor;
  supervisor.managed_session([&] {
    if (auto line = train_and_score(all)) supervisor.finish(std::move(*line));
  });
  if (supervisor.result()) print_on_chief(all.replica, *supervisor.result());
  return supervisor.exit_code();
}

void evaluate_job(const Training& all, const trainer::Model& model) {
  std::vector<trainer::StateTensor> tensors;
  for (trainer::Parameter* one : model.parameters()) {
    tensors.push_back({one->name(), one->shape(), one->value()});
  }
  for (const trainer::StateTensor& one : model.statistics()) tensors.push_back(one);
  const std::size_t scored = trainer::evaluate_checkpoints(
      {.directory = all.settings.chief.supervisor.logdir,
       .idle_seconds = all.settings.idle_seconds,
       .say = [](const std::string& line) { std::cout << line << '\n'
                                                      << std::flush; }},
      tensors,
      [&] { return trainer::evaluate(all.replica, *all.learning.learner, all.data.test); });
  std::cout << "checkpoints_scored=" << scored << '\n' << std::flush;
}

int work(ronde::Engine& engine, Settings& settings, trainer::DeviceMath* math, Network& network) {
  trainer::EngineReplica replica(engine);
  network.replica = &replica;
  const auto images = ronde::examples::load_on_all_ranks(replica, settings.data);
  check_batch(settings, replica.size(), images.train.size());
  const Data data = datasets(replica, settings, images);
  finish_schedule(settings.training, data.training.steps().value_or(1));
  if (settings.chief.verbose) print_on_chief(replica, engine.describe());
  const trainer::Model model(*network.layers);
  Learning learning;
  trainer::succeed_on_all(replica,
                          [&] { learning = make_learner(engine, settings, math, model, images); });
  Training all{engine, settings, replica, data, learning, nullptr};
  if (settings.evaluates) {
    evaluate_job(all, model);
  } else if (math != nullptr) {
    print_on_chief(replica, train_and_score(all).value_or(""));
  } else {
    return supervise(all, model);
  }
  return 0;
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

int run(int argc, char** argv) {
  Settings settings;
  if (!ronde::examples::read_settings(kName, argc, argv, settings)) return 0;
  // This is opened before the engine, which takes the same device, and closed after it, since the
  // engine may still work there.
  const std::unique_ptr<trainer::DeviceMath> math = open_device(settings.device);
  // The model outlives the engine, which may still read its gradients until it is closed.
  Network network;
  make_network(settings, network);
  // The evaluator is a process of its own, wherever it was started from.
  if (settings.evaluates) setenv("RONDE_MPI", "off", 1);
  return ronde::examples::run_rank(kName, settings.flags, [&](ronde::Engine& engine) {
    return work(engine, settings, math.get(), network);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return ronde::examples::run_program(kName, [argc, argv] { return run(argc, argv); });
}
