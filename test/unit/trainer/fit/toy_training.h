// SPDX-License-Identifier: Apache-2.0
// A training of toy images by some rank of a job inside this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <ronde/ronde.hpp>
#include <string>
#include <vector>

#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/fit/fit.h"
#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/nn/models.h"
#include "test/unit/trainer/data/toy_data.h"
#include "test/unit/trainer/local_ranks.h"

namespace ronde::trainer {

struct ToyTraining {
  int ranks = 1;
  std::size_t epochs = 3;
  std::size_t global_batch = 10;
  RuleOptions rule{.momentum = 0.9};
  OptimizerOptions optimizer{.schedule = {.learning_rate = 0.05}};
  bool same_start = true;  // otherwise only the broadcast makes the ranks' parameters equal
  std::size_t most_steps = 0;
  std::vector<Callback*> callbacks{};  // of rank 0
  // The model and its data; empty: an MLP over toy_data().
  std::function<std::unique_ptr<Layers>(std::uint64_t seed, int rank)> model{};
  std::function<Images(std::size_t samples, std::uint64_t seed)> images{};
  ImageShape shape = ImageShape::kFlat;
  std::size_t samples = 205;
  bool validate = false;
  std::function<LossFunction(int rank)> loss{};  // empty: classification_loss()
  // Makes this rank's learner for the model; empty: the model's own.
  std::function<std::unique_ptr<Learner>(Engine&, Network, const Images& train, const Images& test)>
      learner{};
};

// A rank with a model, and what it is trained with.
struct ToyRank {
  template <typename M>
  ToyRank(const LocalJob& job, int rank, M& own) : strategy(job, rank), model(own) {
    model.compile({}, classification_loss);
  }
  JobRank strategy;
  Replica& here = strategy.here();
  Model model;
};

struct ToyOutcome {
  FitResult fit;
  Metrics test;
  std::vector<std::string> hashes;
  std::vector<float> parameters;               // of rank 0
  std::vector<std::vector<float>> statistics;  // one after the other of each rank
};

inline void run_toy_rank(const ToyTraining& training, const LocalJob& job, int rank,
                         std::mutex& mutex, ToyOutcome& outcome) {
  const auto make_images = training.images ? training.images : toy_data;
  const Images train = make_images(training.samples, 1);
  const Images test = make_images(101, 2);
  const std::uint64_t seed = training.same_start ? 5 : 5 + static_cast<std::uint64_t>(rank);
  const auto network =
      training.model ? training.model(seed, rank) : make_mlp(kFeatures, 12, kClasses, seed);
  JobRank strategy(job, rank);
  Replica& replica = strategy.here();
  const auto mine = [&](const Images& images, std::size_t batch, std::size_t parts) {
    return Dataset::from_images(images, training.shape)
        .shuffle(7)
        .batch(batch)
        .shard(static_cast<std::size_t>(rank), static_cast<std::size_t>(training.ranks), parts);
  };
  Model model(*network);
  std::unique_ptr<Learner> own;
  if (training.learner) {
    own = training.learner(strategy.engine(), *network, train, test);
  } else {
    OptimizerOptions options = training.optimizer;
    options.rule = training.rule;
    model.compile(options, training.loss ? training.loss(rank) : classification_loss, {}, 5);
  }
  Learner& learner = own ? *own : model.learner();
  FitOptions options;
  options.epochs = training.epochs;
  options.most_steps = training.most_steps;
  const std::vector<Callback*> none;
  const Dataset mine_of_test = mine(test, 50, 1);
  const FitResult result = fit(
      replica, learner, mine(train, training.global_batch, training.optimizer.accumulate), options,
      rank == 0 ? training.callbacks : none, training.validate ? &mine_of_test : nullptr);
  const Metrics tested = evaluate(replica, learner, mine_of_test);
  const std::string hash = learner.parameter_hash();
  own.reset();
  strategy.engine().close();
  const std::lock_guard lock(mutex);
  outcome.hashes.push_back(hash);
  for (const StateTensor& one : model.network().statistics()) {
    outcome.statistics.emplace_back(one.values.begin(), one.values.end());
  }
  if (rank != 0) return;
  outcome.fit = result;
  outcome.test = tested;
  for (const Parameter* const parameter : model.parameters()) {
    const std::span<const float> values = parameter->value();
    outcome.parameters.insert(outcome.parameters.end(), values.begin(), values.end());
  }
}

inline ToyOutcome run_toy(const ToyTraining& training) {
  ToyOutcome outcome;
  std::mutex mutex;
  run_ranks(training.ranks, [&](const LocalJob& job, int rank) {
    run_toy_rank(training, job, rank, mutex, outcome);
  });
  return outcome;
}

}  // namespace ronde::trainer
