// SPDX-License-Identifier: Apache-2.0
// One program for every strategy: what a training comes to, in the bits of its parameters, and how
// fast it is.
//
//   replicas STRATEGY REPLICAS bits              fit, a loop of one's own, three ways to feed
//   replicas STRATEGY REPLICAS save LOGDIR MOST  under a supervisor, at most so many steps
//   replicas STRATEGY REPLICAS arrays ODD        fit(x, y), where ODD is not the same everywhere
//   replicas STRATEGY REPLICAS feed WAY STEPS    shards, chief or own: steps per second
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <ronde/trainer.hpp>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/random.h"

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

constexpr std::size_t kSamples = 1000;
constexpr std::size_t kBatch = 24;
const OptimizerOptions kOptions = sgd(0.05);

std::unique_ptr<Strategy> make_strategy(const std::string& name, std::size_t replicas) {
  if (name == "mirrored") return std::make_unique<Mirrored>(replicas);
  if (name == "central") return std::make_unique<CentralStorage>(replicas);
  return std::make_unique<MultiWorkerMirrored>(
      MultiWorkerOptions{.replicas = std::max<std::size_t>(replicas, 1)});
}

// Images of noise that say their class by a bright row; those of `process` of `processes` alone,
// where each has its part of every batch.
Dataset images(std::size_t global_batch, std::size_t process = 0, std::size_t processes = 1) {
  constexpr std::size_t kFeatures = 784;
  std::vector<float> inputs;
  std::vector<int> labels;
  for (std::size_t i = 0; i < kSamples; ++i) {
    const std::size_t in_batch = i % global_batch;
    const std::size_t size = std::min(global_batch, kSamples - i + in_batch);
    if (in_batch < size * process / processes || in_batch >= size * (process + 1) / processes) {
      continue;
    }
    Generator generator(7, i);
    labels.push_back(static_cast<int>(generator.below(10)));
    for (std::size_t j = 0; j < kFeatures; ++j) {
      const bool bright = j / 28 == 2 * static_cast<std::size_t>(labels.back());
      inputs.push_back(generator.uniform(0.0F, bright ? 2.0F : 1.0F));
    }
  }
  return Dataset::from_arrays({1, 28, 28}, std::move(inputs), labels, 10)
      .batch(global_batch / processes);
}

std::unique_ptr<Layers> network() {
  auto layers = std::make_unique<Layers>();
  layers->add<Applied>(flatten);
  layers->add<Linear>("fc1", 784, 32, Initialization::kHe, 1);
  layers->add<Applied>(relu);
  layers->add<Linear>("fc2", 32, 10, Initialization::kGlorot, 1);
  return layers;
}

void step(Replica& here, const Model& model, const Part& batch) {
  here.minimize(softmax_cross_entropy(model(batch.inputs), batch.labels));
}

DistributedDataset feed(Strategy& strategy, const std::string& way, std::size_t batch) {
  if (way == "shards") return strategy.distribute(images(batch));
  if (way == "chief") return strategy.distribute_from_chief(images(batch));
  return strategy.distribute_from([batch](const InputContext& input) {
    return images(batch, input.input_pipeline_id, input.num_input_pipelines);
  });
}

std::string fed(Strategy& strategy, const std::string& way) {
  Model model(network);
  const Optimizer optimizer(model, kOptions);
  for (const DistributedBatch& batch : feed(strategy, way, kBatch).epoch(0)) {
    strategy.run([&](Replica& here, const Part& mine) { step(here, model, mine); }, batch);
  }
  return model.parameter_hash();
}

void print_bits(Strategy& strategy) {
  Model model(network);
  model.compile(sgd(0.05, 0.9), classification_loss, {"top_3_accuracy"});
  model.fit(images(kBatch), {.epochs = 2});
  const Metrics test = model.evaluate(images(100));
  const Predictions predicted = model.predict(images(100));
  double sum = 0.0;
  for (std::size_t i = 0; i < predicted.outputs.size(); ++i) {
    sum += static_cast<double>(i) * predicted.outputs[i];
  }
  const auto mean = strategy.reduce(ReduceOp::kMean,
                                    strategy.run([](Replica& here) { return 1.0 * here.rank(); }));
  const Array ranks = strategy.gather(
      strategy.run([](Replica& here) { return Array{{1}, {static_cast<float>(here.rank())}}; }));
  const std::string shards = fed(strategy, "shards");
  const std::string chief = fed(strategy, "chief");
  const std::string own = fed(strategy, "own");
  if (!strategy.is_chief()) return;
  std::printf("replicas=%zu fit=%s shards=%s chief=%s own=%s", strategy.num_replicas_in_sync(),
              model.parameter_hash().c_str(), shards.c_str(), chief.c_str(), own.c_str());
  std::printf(" accuracy=%.4f top_3=%.4f predicted=%zu sum=%.9g mean=%g ranks=", test.accuracy(),
              test.mean("top_3_accuracy"), predicted.samples.size(), sum, mean);
  for (const float rank : ranks.values) std::printf("%g,", static_cast<double>(rank));
  std::printf("\n");
}

void save(Strategy& strategy, const std::string& logdir, std::size_t most_steps) {
  Model model(network);
  model.compile(adam(0.05), classification_loss);
  const Dataset data = images(kBatch);
  const auto steps = strategy.run([&](Replica& here) {
    std::uint64_t taken = 0;
    Supervisor supervisor(here, model.optimizer(), {.logdir = logdir});
    supervisor.managed_session([&] {
      std::vector<std::unique_ptr<Callback>> owned;
      owned.push_back(std::make_unique<SaveCheckpoints>(supervisor, model.learner()));
      FitOptions options{.epochs = 1, .most_steps = most_steps};
      go_on(options, supervisor);
      Callback* const callbacks[] = {owned.front().get()};
      taken = fit(here, model.learner(), model.shard(data), options, callbacks).steps;
    });
    return taken;
  });
  if (!strategy.is_chief()) return;
  std::printf("steps=%ju param_hash=%s\n", std::uintmax_t{steps[0]},
              model.parameter_hash().c_str());
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Steps of 250 samples a replica, whose images are 0.8 MB.
void print_feed(Strategy& strategy, const std::string& way, std::size_t steps) {
  Model model(network);
  const Optimizer optimizer(model, kOptions);
  const DistributedDataset data = feed(strategy, way, 250 * strategy.num_replicas_in_sync());
  std::size_t taken = 0;
  const double begin = seconds();
  for (std::uint64_t epoch = 0; taken < steps; ++epoch) {
    DistributedEpoch batches = data.epoch(epoch);
    while (taken < steps && batches.next()) {
      strategy.run([&](Replica& here, const Part& mine) { step(here, model, mine); },
                   batches.batch());
      ++taken;
    }
  }
  const double took = seconds() - begin;
  if (!strategy.is_chief()) return;
  std::printf("way=%s steps=%zu steps_per_second=%.2f\n", way.c_str(), taken,
              static_cast<double>(taken) / took);
}

// Arrays that are not the same in each process: `odd` says of what.
void fit_arrays(const Strategy& strategy, const std::string& odd) {
  Model model(network);
  model.compile(kOptions, classification_loss);
  const bool other = !strategy.is_chief();
  const float input = other && odd == "inputs" ? 1.0F : 0.0F;
  const Array inputs{{4, 1, 28, 28}, std::vector<float>(4 * 784, input)};
  model.fit(inputs, std::vector<int>{0, 1, 2, other && odd == "answers" ? 4 : 3}, 4);
  if (strategy.is_chief()) std::printf("fitted\n");
}

void run(int argc, char** argv) {
  const auto text = [&](int i) { return std::string(i < argc ? argv[i] : ""); };
  const auto number = [&](int i) { return std::stoul("0" + text(i)); };
  const std::unique_ptr<Strategy> strategy = make_strategy(text(1), number(2));
  const Scope scope(*strategy);
  if (text(3) == "bits") print_bits(*strategy);
  if (text(3) == "arrays") fit_arrays(*strategy, text(4));
  if (text(3) == "save") save(*strategy, text(4), number(5));
  if (text(3) == "feed") print_feed(*strategy, text(4), number(5));
}

}  // namespace

int main(int argc, char** argv) try {
  run(argc, argv);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "replicas: %s\n", error.what());
  return exit_code_of(error);
}
