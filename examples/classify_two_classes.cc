// SPDX-License-Identifier: Apache-2.0
// Tells two classes of Fashion-MNIST apart with a small convolutional network, as public guides to
// distributed training do with two kinds of pictures: 20 epochs on one rank are 10 on two, in each
// of which every rank goes over as many images as the data set has, at a learning rate times the
// number of ranks. So the ranks together see as many images as one would.
#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/trainer/chief/supervisor.h"
#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/data/fashion_mnist.h"
#include "bindings/trainer/loop/agreement.h"
#include "bindings/trainer/loop/fit.h"
#include "bindings/trainer/loop/host_learner.h"
#include "bindings/trainer/loop/progress.h"
#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/optim/distributed_optimizer.h"
#include "examples/support/chief_callbacks.h"
#include "examples/support/command_line.h"
#include "examples/support/data.h"
#include "examples/support/job.h"

namespace {

namespace trainer = ronde::trainer;

constexpr const char* kName = "classify_two_classes";
constexpr std::size_t kEvaluationBatch = 250;

struct Settings {
  std::string data;
  std::array<std::size_t, 2> classes{};
  std::size_t epochs = 0;
  std::size_t steps = 0;
  std::size_t batch = 0;
  double learning_rate = 0.0;
  double dropout = 0.0;
  std::uint64_t seed = 0;
  int threads = 1;
  ronde::examples::ChiefSettings chief;
  trainer::Flags flags;
};

// Returns the number of a class that is given by number or by name; as many as there are: none.
std::size_t class_of(std::string_view text) {
  const auto& names = trainer::kFashionMnistClasses;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (text == names[i] || text == std::to_string(i)) return i;
  }
  return names.size();
}

std::array<std::size_t, 2> read_classes(const ronde::examples::CommandLine& line) {
  const std::string text = line.text("classes");
  const std::size_t comma = text.find(',');
  const bool two = comma != std::string::npos;
  const std::size_t first = class_of(std::string_view(text).substr(0, comma));
  const std::size_t second = class_of(two ? std::string_view(text).substr(comma + 1) : "");
  if (std::max(first, second) == trainer::kFashionMnistClasses.size() || first == second) {
    std::string names;
    for (const std::string_view name : trainer::kFashionMnistClasses) {
      names += (names.empty() ? "" : " ") + std::string(name);
    }
    throw ronde::examples::UsageError(
        "--classes " + (text.empty() ? "\"\"" : text) +
        " is not valid: use two different ones with a comma between them, each 0 to 9 or one of: " +
        names);
  }
  return {first, second};
}

// Returns false if the user only asked for help or for the version.
bool read_settings(int argc, char** argv, Settings& settings) {
  ronde::examples::CommandLine line(
      kName, "Tells two classes of Fashion-MNIST apart with a convolutional network.");
  line.add_flag("data", trainer::kFashionMnistDirectory, ronde::examples::kDataHelp);
  line.add_flag("classes", "t-shirt,shirt", "the two classes, by number or by name");
  line.add_flag("epochs", "20",
                "passes over the training data, divided by the number of ranks and rounded up: in "
                "each of them every rank takes as many images as there are");
  line.add_flag("batch", "64", "samples of a rank in a step");
  line.add_flag("learning-rate", "0.0005", "step size of Adam, multiplied by the number of ranks");
  line.add_flag("dropout", "0.5", "share of the dense layer that is dropped while training");
  line.add_flag("seed", "1", "seed of the first weights, the order of the samples, and dropout");
  line.add_flag("steps", "0", "stop after so many steps; 0: after all epochs");
  line.add_flag("threads", "1", "threads of a rank's computing");
  ronde::examples::add_chief_flags(line);
  if (!line.parse(argc, argv)) return false;
  settings.data = line.text("data");
  settings.classes = read_classes(line);
  settings.epochs = line.integer("epochs", 1, 100'000);
  settings.batch = line.integer("batch", 1, 100'000);
  settings.learning_rate = line.positive("learning-rate", 1.0);
  settings.dropout = line.share("dropout");
  settings.seed = line.integer("seed", 0, UINT64_MAX);
  settings.steps = line.integer("steps", 0, 1'000'000'000);
  settings.threads = static_cast<int>(line.integer("threads", 1, 256));
  settings.chief = ronde::examples::read_chief_flags(line);
  settings.flags = line.flags();
  return true;
}

// Over {samples, 1, 28, 28}, with one number for each sample: above 0 is the second class.
void make_network(trainer::Sequential& network, const Settings& settings) {
  using Init = trainer::Initialization;
  constexpr trainer::Window kConvolution{.side = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
  constexpr trainer::Window kHalf{.side = {2, 2}, .stride = {2, 2}, .padding = {0, 0}};
  constexpr std::size_t kFeatures = 64 * 7 * 7;
  constexpr std::size_t kHidden = 128;
  network.add<trainer::Convolution>("conv1", 1U, 32U, kConvolution, Init::kLecun, settings.seed);
  network.add<trainer::Relu>();
  network.add<trainer::MaxPool>(kHalf);
  network.add<trainer::Convolution>("conv2", 32U, 64U, kConvolution, Init::kLecun, settings.seed);
  network.add<trainer::Relu>();
  network.add<trainer::MaxPool>(kHalf);
  network.add<trainer::Flatten>();
  network.add<trainer::Linear>("fc1", kFeatures, kHidden, Init::kHe, settings.seed);
  network.add<trainer::Relu>();
  network.add<trainer::Dropout>("drop", settings.dropout);
  network.add<trainer::Linear>("fc2", kHidden, 1U, Init::kGlorot, settings.seed);
}

trainer::Loss loss_of(const trainer::Tensor& outputs, const trainer::Batch& batch,
                      std::size_t global_batch) {
  return binary_cross_entropy(outputs, batch.labels, global_batch);
}

// Shares are of the time of rank 0: it is all computing or waiting; a transfer may go on beside
// either.
std::string result_line(int ranks, const Settings& settings, std::size_t epochs,
                        const trainer::FitResult& fit, double accuracy, const std::string& hash) {
  std::array<char, 512> text{};
  const double seconds = std::max(fit.seconds, 1e-9);  // no step: it was finished already
  std::snprintf(text.data(), text.size(),
                "ranks=%d classes=%zu,%zu epochs=%zu train_loss=%.6f accuracy=%.4f seconds=%.3f "
                "images_per_second=%.0f param_hash=%s compute_share=%.3f wait_share=%.3f "
                "transfer_share=%.3f share_before_wait=%.3f straggler=%d steps=%ju",
                ranks, settings.classes[0], settings.classes[1], epochs, fit.training.loss(),
                accuracy, fit.seconds, static_cast<double>(fit.samples) / seconds, hash.c_str(),
                1.0 - fit.wait_seconds / seconds, fit.wait_seconds / seconds,
                fit.transfer_seconds / seconds, fit.share_before_wait, fit.straggler,
                std::uintmax_t{fit.steps});
  return text.data();
}

void announce(ronde::Engine& engine, const Settings& settings, std::size_t epochs, double rate) {
  std::printf("%zu epochs over %d ranks: %zu on each, with a learning rate of %g x %d = %g\n",
              settings.epochs, engine.size(), epochs, settings.learning_rate, engine.size(), rate);
  if (settings.chief.verbose) std::puts(engine.describe().c_str());
  std::fflush(stdout);
}

int train(ronde::Engine& engine, const Settings& settings, trainer::Sequential& network) {
  trainer::EngineReplica replica(engine);
  const trainer::FashionMnist all = ronde::examples::load_on_all_ranks(replica, settings.data);
  const auto rank = static_cast<std::size_t>(engine.rank());
  const auto ranks = static_cast<std::size_t>(engine.size());
  const auto chosen = [&](const trainer::Images& images) {
    return trainer::Dataset::from_images(trainer::select_classes(images, settings.classes),
                                         trainer::ImageShape::kImage);
  };
  const trainer::Dataset training = chosen(all.train)
                                        .shuffle(settings.seed)
                                        .repeat(ranks)
                                        .batch(settings.batch * ranks)
                                        .shard(rank, ranks)
                                        .prefetch(1);
  const trainer::Dataset test = chosen(all.test).batch(kEvaluationBatch * ranks).shard(rank, ranks);

  const trainer::Model model(network);
  trainer::Adam adam(model.parameters());
  trainer::DistributedOptions how;
  how.schedule.learning_rate = settings.learning_rate * static_cast<double>(ranks);
  trainer::DistributedOptimizer optimizer(engine, model.parameters(), {}, adam, how);
  trainer::HostLearner learner(model, loss_of, optimizer, settings.seed, settings.threads);

  trainer::FitOptions options;
  const std::size_t epochs = (settings.epochs + ranks - 1) / ranks;
  options.epochs = epochs;
  options.most_steps = settings.steps;
  const bool speaks = replica.is_chief();
  if (speaks) announce(engine, settings, epochs, how.schedule.learning_rate);
  trainer::Progress progress(
      speaks ? &std::cout : nullptr,
      speaks && ronde::examples::stderr_is_terminal() ? &std::cerr : nullptr);
  trainer::LogSteps log(replica, learner, settings.chief.log_every, speaks ? &std::cout : nullptr);
  trainer::SupervisorOptions duties = settings.chief.supervisor;
  duties.flags = {{"--classes",
                   std::to_string(settings.classes[0]) + ',' + std::to_string(settings.classes[1])},
                  {"--dropout", std::to_string(settings.dropout)},
                  {"--seed", std::to_string(settings.seed)},
                  {"ranks", std::to_string(ranks)},  // here they decide what is learned
                  {"data", training.settings()}};
  trainer::Supervisor supervisor(replica, model, optimizer, duties);
  supervisor.managed_session([&] {
    ronde::examples::ChiefCallbacks chief(engine, replica, learner, supervisor, settings.chief,
                                          how.schedule);
    std::vector<trainer::Callback*> callbacks{&progress, &log};
    chief.add_to(callbacks, options);
    const trainer::FitResult fit = trainer::fit(replica, learner, training, options, callbacks,
                                                settings.chief.patience == 0 ? nullptr : &test);
    if (fit.cut_short) return;
    const double accuracy = trainer::evaluate(replica, learner, test).accuracy();
    const std::string hash = learner.parameter_hash();
    trainer::require_same_parameters(replica, hash);
    supervisor.finish(result_line(engine.size(), settings, epochs, fit, accuracy, hash));
  });
  if (speaks && supervisor.result()) std::cout << *supervisor.result() << '\n' << std::flush;
  return supervisor.exit_code();
}

int run(int argc, char** argv) {
  Settings settings;
  if (!read_settings(argc, argv, settings)) return 0;
  // The network outlives the engine, which may still read its gradients until it is closed.
  trainer::Sequential network;
  make_network(network, settings);
  return ronde::examples::run_rank(kName, settings.flags, [&](ronde::Engine& engine) {
    return train(engine, settings, network);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return ronde::examples::run_program(kName, [argc, argv] { return run(argc, argv); });
}
