// SPDX-License-Identifier: Apache-2.0
// Trainings on the ranks of a job inside this process, under a supervisor.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/fit.h"
#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/keep/callbacks.h"
#include "bindings/trainer/keep/supervisor.h"
#include "bindings/trainer/nn/models.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/fit/toy_training.h"

namespace ronde::trainer {

// What some rank does at a place of the loop: it may stop the training, or throw.
using RankHook = std::function<void(Supervisor&, int rank)>;

struct SupervisedTraining {
  int ranks = 2;
  std::size_t epochs = 3;
  SupervisorOptions supervisor{};
  std::function<void(SupervisorOptions&, int rank)> options_of_rank{};  // what differs
  RankHook before_step_done{};  // the optimiser has updated, and the supervisor does not know
  RankHook after_step_done{};
  RankHook in_validation{};  // after each of its batches; empty: there is no validation
  std::uint64_t patience = 0;
  double learning_rate = 0.01;
  std::size_t schedule_steps = 1000;
  std::uint64_t seed = 5;
  std::size_t hidden = 12;
  bool batch_norm = false;
  LogMetrics::Options logs{};  // no directory: none are written
};

// Vectors have an element for each rank that got so far, but for `errors` and `exit_codes`.
struct SupervisedOutcome {
  FitResult fit;  // of rank 0
  std::vector<std::string> hashes;
  std::vector<std::vector<float>> tensors;  // all that a checkpoint holds; the chief's first
  std::vector<std::uint64_t> epochs;        // at its end
  std::vector<std::uint64_t> began_at;      // the global step
  std::vector<std::string> lines;
  std::string finished;
  bool stopped = false;             // rank 0
  std::vector<std::string> errors;  // by rank; empty: it ended well
  std::vector<int> exit_codes;      // by rank
};

class RankHooks final : public Callback {
 public:
  RankHooks(Supervisor& supervisor, int rank, RankHook in_step, RankHook in_validation = {})
      : supervisor_(supervisor),
        rank_(rank),
        in_step_(std::move(in_step)),
        in_validation_(std::move(in_validation)) {}
  void on_step(TrainingState& /*state*/) override {
    if (in_step_) in_step_(supervisor_, rank_);
  }
  void on_validation_batch(TrainingState& /*state*/) override {
    if (in_validation_) in_validation_(supervisor_, rank_);
  }

 private:
  Supervisor& supervisor_;
  int rank_;
  RankHook in_step_;
  RankHook in_validation_;
};

inline std::vector<float> all_tensors(const Network& model, UpdateRule& rule) {
  std::vector<float> all;
  for (const Parameter* parameter : model.parameters()) {
    all.insert(all.end(), parameter->value().begin(), parameter->value().end());
  }
  for (const auto& tensors : {model.statistics(), rule.state()}) {
    for (const StateTensor& one : tensors) {
      all.insert(all.end(), one.values.begin(), one.values.end());
    }
  }
  all.push_back(static_cast<float>(rule.steps()));
  return all;
}

// One rank of a training, and what it needs.
class SupervisedRank {
 public:
  SupervisedRank(const SupervisedTraining& training, const LocalJob& job, int rank,
                 std::mutex& mutex, SupervisedOutcome& outcome)
      : training_(training), rank_(rank), mutex_(mutex), outcome_(outcome), strategy_(job, rank) {}

  void run() {
    // Ranks begin with other weights, so that only the chief's state makes them equal.
    auto network = make_mlp(kFeatures, training_.hidden, kClasses,
                            training_.seed + static_cast<std::uint64_t>(rank_));
    if (training_.batch_norm) network->add<BatchNorm>("norm", kClasses);
    Model model(*network);
    model.compile({.rule = {.kind = RuleOptions::Kind::kAdam},
                   .schedule = {.kind = ScheduleOptions::Kind::kLinear,
                                .learning_rate = training_.learning_rate,
                                .total = training_.schedule_steps}},
                  classification_loss, {}, 5);
    SupervisorOptions options = training_.supervisor;
    options.say = say();
    if (training_.options_of_rank) training_.options_of_rank(options, rank_);
    Supervisor supervisor(here_, model.optimizer(), options);
    supervisor.managed_session([&] { body(supervisor, model.learner()); });
    const std::lock_guard lock(mutex_);
    outcome_.exit_codes[static_cast<std::size_t>(rank_)] = supervisor.exit_code();
    if (rank_ == 0) outcome_.stopped = supervisor.stopped();
    if (supervisor.result()) outcome_.finished = *supervisor.result();
    outcome_.hashes.push_back(model.parameter_hash());
    outcome_.epochs.push_back(supervisor.epoch());
    auto& tensors = outcome_.tensors;
    tensors.insert(rank_ == 0 ? tensors.begin() : tensors.end(),
                   all_tensors(model.network(), model.optimizer().rule()));
  }

 private:
  [[nodiscard]] Dataset data_of(const Images& images, std::size_t batch) const {
    return Dataset::from_images(images, ImageShape::kFlat)
        .shuffle(7)
        .batch(batch)
        .shard(static_cast<std::size_t>(rank_), static_cast<std::size_t>(training_.ranks));
  }
  [[nodiscard]] PrintLine say() const {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      outcome_.lines.push_back(line);
    };
  }

  void body(Supervisor& supervisor, Learner& learner) {
    // Each of three ranks has two samples of the last batch, as a normalisation needs them.
    const Images images = toy_data(training_.batch_norm ? 206 : 205, 1);
    const Images test = toy_data(101, 2);
    const Dataset data = data_of(images, 10);
    const Dataset validation = data_of(test, 20);
    FitOptions how;
    how.epochs = training_.epochs;
    go_on(how, supervisor);
    RankHooks before(supervisor, rank_, training_.before_step_done, training_.in_validation);
    // Epochs have other batches, so where nothing is learned their losses differ by rounding.
    EarlyStopping early(supervisor.numbers(), training_.patience, 1e-6, say());
    LogMetrics::Options logging = training_.logs;
    logging.say = say();
    logging.every += static_cast<std::uint64_t>(rank_);  // what counts is the chief's
    LogMetrics logs(here_, learner, logging);
    SaveCheckpoints save(supervisor, learner);
    RankHooks after(supervisor, rank_, training_.after_step_done);
    std::vector<Callback*> callbacks{&before};
    if (training_.patience != 0) callbacks.push_back(&early);
    if (!logging.directory.empty()) callbacks.push_back(&logs);
    callbacks.push_back(&save);
    callbacks.push_back(&after);
    const std::uint64_t began = supervisor.global_step();
    const FitResult fitted =
        fit(here_, learner, data, how, callbacks, training_.in_validation ? &validation : nullptr);
    if (!fitted.cut_short) supervisor.finish("done in " + std::to_string(fitted.steps));
    const std::lock_guard lock(mutex_);
    outcome_.began_at.push_back(began);
    if (rank_ == 0) outcome_.fit = fitted;
  }

  const SupervisedTraining& training_;
  const int rank_;
  std::mutex& mutex_;
  SupervisedOutcome& outcome_;
  JobRank strategy_;
  Replica& here_ = strategy_.here();
};

// Whatever the ranks throw is in the outcome.
inline SupervisedOutcome run_to_failure(const SupervisedTraining& training) {
  SupervisedOutcome outcome;
  outcome.errors.resize(static_cast<std::size_t>(training.ranks));
  outcome.exit_codes.resize(static_cast<std::size_t>(training.ranks), -1);
  std::mutex mutex;
  run_ranks(training.ranks, [&](const LocalJob& job, int rank) {
    try {
      SupervisedRank(training, job, rank, mutex, outcome).run();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      outcome.errors[static_cast<std::size_t>(rank)] = error.what();
      outcome.exit_codes[static_cast<std::size_t>(rank)] = exit_code_of(error);
    }
  });
  return outcome;
}

inline SupervisedOutcome run_supervised(const SupervisedTraining& training) {
  SupervisedOutcome outcome = run_to_failure(training);
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
  return outcome;
}

// The same training as it would end undisturbed.
inline SupervisedOutcome run_undisturbed(SupervisedTraining training) {
  training.supervisor = {};
  training.options_of_rank = {};
  training.before_step_done = training.after_step_done = training.in_validation = {};
  return run_supervised(training);
}

// A hook that asks for a stop once so many steps are done, on one rank.
inline RankHook stop_after(std::uint64_t step, int of_rank = 0) {
  return [step, of_rank](Supervisor& supervisor, int rank) {
    if (rank == of_rank && supervisor.global_step() + 1 == step) supervisor.stop();
  };
}

inline constexpr std::uint64_t kStepsOfEpoch = 21;  // 205 samples in batches of 10

[[nodiscard]] inline std::vector<std::uint64_t> steps_in(const std::string& directory) {
  return CheckpointDirectory::steps(disk(), directory);
}

}  // namespace ronde::trainer
