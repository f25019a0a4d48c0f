// SPDX-License-Identifier: Apache-2.0
// Every strategy, servers too, with every feature of a training: the program is the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bindings/trainer/fit/program/training.h"
#include "bindings/trainer/nn/batch_norm.h"
#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/server/strategy/strategy.h"
#include "test/unit/trainer/fit/strategy/strategy_kit.h"
#include "test/unit/trainer/server/served_kit.h"
#include "test/unit/trainer/temporary_folder.h"

namespace ronde::trainer::server {
namespace {

// What a program does on each task; returns what the chief has come to.
using Program = std::function<std::string(Strategy& strategy)>;

std::string run_alone(const trainer::StrategyMaker& make, const Program& program) {
  const auto strategy = make();
  const Scope scope(*strategy);
  return program(*strategy);
}

struct Way {
  std::string name;
  std::function<std::string(const Program&)> run;
  std::string like{};   // whose result it has, bit for bit
  bool repeats = true;  // a second run has the bits of the first
};

std::vector<Way> every_way() {
  std::vector<Way> ways;
  for (const NamedStrategy& one : every_strategy()) {
    ways.push_back({one.name, [one](const Program& what) { return run_alone(one.make, what); }});
  }
  const auto served = [](const char* mode, std::uint32_t workers) {
    return [=](const Program& what) {
      ServedJobOptions job{.servers = 2, .workers = workers};
      job.tasks.servers.mode = mode_of(mode);
      return run_served(job, what);
    };
  };
  ways.push_back({"servers, sync, one worker", served("sync", 1), "Default"});
  ways.push_back({"servers, sync", served("sync", 2)});
  ways.push_back({"servers, async", served("async", 2), "", false});
  ways.push_back({"servers, stale=2", served("stale=2", 2), "", false});
  return ways;
}

// Runs the program in every way, and compares what must be the same.
void walk(const Program& program) {
  std::map<std::string, std::string> results;
  for (const Way& way : every_way()) {
    SCOPED_TRACE(way.name);
    results[way.name] = way.run(program);
    EXPECT_NE(results[way.name], "");
    if (way.like.empty()) continue;
    EXPECT_EQ(results[way.name], results[way.like]);
  }
}

struct Made {
  explicit Made(const OptimizerOptions& options = kToyOptions) : model(toy_network) {
    model.compile(options, classification_loss, {"accuracy"});
  }
  Model model;
};

// A worker of an asynchronous job takes as many steps as the others leave it.
std::string fit_with(const Strategy& strategy, const OptimizerOptions& options) {
  Made made(options);
  const FitResult fitted = made.model.fit(toy_batches(), {.epochs = 4});
  EXPECT_LT(fitted.training.loss(), 1.5);
  if (strategy.steps_per_batch() == 1) {
    EXPECT_EQ(fitted.steps, 4U * 21U);
  }
  const Metrics scored = made.model.evaluate(toy_batches());
  EXPECT_EQ(scored.samples, 205.0);
  const Predictions predicted = made.model.predict(toy_batches());
  EXPECT_EQ(predicted.samples.size(), 205U);
  EXPECT_EQ(predicted.outputs.size(), 205U * kClasses);
  for (std::uint32_t i = 0; i < predicted.samples.size(); ++i) EXPECT_EQ(predicted.samples[i], i);
  return made.model.parameter_hash();
}

TEST(EveryStrategy, FitsEvaluatesAndPredicts) {
  walk([](Strategy& strategy) { return fit_with(strategy, kToyOptions); });
}

TEST(EveryStrategy, Accumulates) {
  OptimizerOptions options = kToyOptions;
  options.accumulate = 2;
  walk([&](Strategy& strategy) { return fit_with(strategy, options); });
}

TEST(EveryStrategy, Clips) {
  OptimizerOptions options = kToyOptions;
  options.schedule.learning_rate = 1.0;
  options.clip_norm = 0.05;
  walk([&](Strategy& strategy) { return fit_with(strategy, options); });
}

std::string looped(Strategy& strategy) {
  Made made;
  std::vector<double> sums;
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    sums.push_back(0.0);
    for (const DistributedBatch& batch : strategy.distribute(toy_batches()).epoch(epoch)) {
      const auto losses = strategy.run(
          [&](Replica& here, const Part& mine) {
            return toy_step(here, made.model, made.model.optimizer(), mine);
          },
          batch);
      sums.back() += strategy.reduce(ReduceOp::kSum, losses);
    }
  }
  EXPECT_LT(sums.back(), sums.front());
  return made.model.parameter_hash();
}

TEST(EveryStrategy, ALoopOfTheProgramsOwnGivesWhatFitDoes) {
  for (const Way& way : every_way()) {
    SCOPED_TRACE(way.name);
    const std::string own = way.run(looped);
    if (!way.repeats) continue;
    EXPECT_EQ(own, way.run([](Strategy& one) { return fit_with(one, kToyOptions); }));
  }
}

TEST(EveryStrategy, LearnsToTellTheClassesApart) {
  walk([](Strategy&) {
    Made made;
    made.model.fit(toy_batches(), {.epochs = 6});
    EXPECT_GT(made.model.evaluate(toy_batches(101)).accuracy(), 0.9);
    return made.model.parameter_hash();
  });
}

TEST(EveryStrategy, PredictsInTheDataSetsOrder) {
  walk([](Strategy&) {
    Model model([] { return Linear("dense", 1, 1, Initialization::kGlorot, 3); });
    model.compile(kPlainOptions, regression_loss);
    std::vector<float> inputs;
    for (int i = 0; i < 23; ++i) inputs.push_back(static_cast<float>(i));
    const std::vector<float> targets(inputs.size(), 0.0F);
    const Predictions all =
        model.predict(Dataset::from_arrays({1}, inputs, targets).shuffle(3).batch(7));
    const float weight = model.parameters()[0]->value()[0];
    EXPECT_EQ(all.samples.size(), inputs.size());
    for (std::size_t i = 0; i < all.samples.size(); ++i) {
      EXPECT_EQ(all.samples[i], i);
      EXPECT_FLOAT_EQ(all.outputs[i], weight * inputs[i]);
    }
    return model.parameter_hash();
  });
}

TEST(EveryStrategy, Normalises) {
  walk([](Strategy&) {
    Model model([] {
      auto network = std::make_unique<Layers>();
      network->add<Linear>("first", kFeatures, 8, Initialization::kHe, 3);
      network->add<BatchNorm>("norm", 8);
      network->add<Linear>("last", 8, kClasses, Initialization::kGlorot, 3);
      return network;
    });
    model.compile(kToyOptions, classification_loss);
    model.fit(toy_batches(200, 20), {.epochs = 4});
    const Metrics scored = model.evaluate(toy_batches());
    EXPECT_GT(scored.accuracy(), 0.5);
    // Statistics travel with the variables: they have left where they began.
    EXPECT_NE(model.network().statistics().front().values[0], 0.0F);
    return model.parameter_hash() + std::to_string(scored.loss());
  });
}

struct Left {
  std::size_t events = 0;
  std::uint64_t step = 0;  // of the newest checkpoint
};

Left left_in(const std::string& folder) {
  Left left;
  for (const auto& one : std::filesystem::directory_iterator(folder)) {
    const std::string name = one.path().filename();
    left.events += name.starts_with("events.out.tfevents.") ? 1U : 0U;
    if (!name.starts_with("step-")) continue;
    left.step = std::max<std::uint64_t>(left.step, std::stoull(name.substr(5)));
  }
  return left;
}

// A training with all duties that is stopped, as by SIGTERM, and goes on in the same folder.
TEST(EveryStrategy, StopsSavesAndGoesOn) {
  for (const Way& way : every_way()) {
    SCOPED_TRACE(way.name);
    const TemporaryFolder folder;
    const auto run = [&](const std::string& logdir, std::size_t steps, double seconds) {
      return way.run([&, steps, seconds](Strategy&) {
        Made made;
        const Dataset data = toy_batches();
        RunSettings settings;
        settings.steps = steps;
        settings.log_every = 10;
        settings.supervisor.logdir = logdir;
        settings.supervisor.max_seconds = seconds;
        const Training training{.data = data, .test = data, .epochs = 1'000'000};
        const int code = train(made.model, training, settings);
        return std::to_string(code) + (code == 0 ? " " + made.model.parameter_hash() : "");
      });
    };
    EXPECT_EQ(run(folder.path(), 0, 0.3), "75");
    const Left left = left_in(folder.path());
    EXPECT_EQ(left.events, 1U);
    EXPECT_GT(left.step, 0U);
    const std::string resumed = run(folder.path(), left.step + 20, 0.0);
    EXPECT_THAT(resumed, testing::StartsWith("0 "));
    EXPECT_GE(left_in(folder.path()).step, left.step + 20);
    if (!way.repeats) continue;
    EXPECT_EQ(run("", left.step + 20, 0.0), resumed);
  }
}

TEST(EveryStrategy, StopsEarly) {
  walk([](Strategy&) {
    OptimizerOptions options = kToyOptions;
    options.schedule.learning_rate = 1e-12;  // nothing is learned
    Made made(options);
    const Dataset data = toy_batches();
    RunSettings settings;
    settings.stop_early = true;
    settings.patience = 2;
    const Training training{.data = data, .test = data, .epochs = 1'000'000};
    EXPECT_EQ(train(made.model, training, settings), 0);
    return made.model.parameter_hash();
  });
}

}  // namespace
}  // namespace ronde::trainer::server
