// SPDX-License-Identifier: Apache-2.0
// What a model is trained with: the gradients of all replicas are summed on the way, clipped, and
// the rule updates the parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/callbacks.h"
#include "bindings/trainer/optim/gradient_path.h"
#include "bindings/trainer/optim/optimizer_options.h"
#include "bindings/trainer/optim/update_rule.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

class Model;
class Network;

// A sum of gradients over the ranks is NaN or infinite. All ranks have the same sums, so all of
// them throw this in the same step, with the same text; no parameter has been updated, and the
// running statistics are those after the step before, also on a rank whose own batch was good: a
// step counts whole or not at all.
class NotFinite : public AgreedError {
 public:
  NotFinite(const std::string& message, std::string parameter)
      : AgreedError(message, 0, kExitConfiguration), parameter_(std::move(parameter)) {}

  // The first parameter whose gradient it is.
  [[nodiscard]] const std::string& parameter() const noexcept { return parameter_; }

 private:
  std::string parameter_;
};

struct StepResult {
  double learning_rate = 0.0;
  double norm = 0.0;  // of the summed gradient, before it was clipped
};

//   Optimizer optimizer(model, adam(0.001));  // or any OptimizerOptions, as {.accumulate = 2}
//   for each step, on each replica:
//     for each of the `accumulate` micro-batches:
//       tape.begin(...); optimizer.of(here).backward(tape, softmax_cross_entropy(...));
//     optimizer.of(here).step();
//
// The object that a program makes is that of its first replica, and has one for each other replica
// of the process; `of` gives a replica's own. Where there is one alone, it is this.
//
// Gradients are summed over micro-batches and ranks, not averaged: a loss is divided by the global
// batch already. A micro-batch's gradient is computed whole before it is added, and Ronde sums the
// ranks of a host in their order; so p ranks of one host get the bits of one rank that accumulates
// p micro-batches, if rank r has the r-th.
//
// Every rank takes every step. In a pass that does not use a parameter its gradient is zeros, and
// so it is in a micro-batch without samples.
//
// Ownership: the model must outlive this object. If it goes away between backward() and step(), as
// when an exception unwinds, it first waits for what is on its way (with as much patience as an
// engine's close() has), so that nothing is written into memory that goes away next.
//
// Ranks that differ are found when they differ: in its first step, in each 500th (in every one with
// RONDE_CHECK=replicas in the environment of all ranks), and in require_same_replicas(), hashes of
// parameters, moments and counters are compared over the ranks, and of those statistics that are
// of all ranks (a rank's own may differ until they are broadcast). The first step also compares
// the samples of all ranks with what their losses were divided by.
//
// Errors: ronde::Error with the codes of GradientAverager, besides what is said below. After an
// exception of backward() the step cannot be completed: let go of this object.
//
// Thread safety: made, and let go, by the strategy's thread; of() belongs to its replica's.
class Optimizer {
 public:
  // Gives every replica the chief's parameters. Throws TrainerError where the model was made under
  // another strategy than the current one, and for options that make no sense.
  Optimizer(Model& model, const OptimizerOptions& options);
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  ~Optimizer();

  [[nodiscard]] const Model& model() const noexcept { return model_; }
  // Throws TrainerError on a replica of another strategy.
  [[nodiscard]] Optimizer& of(const Replica& here);
  // In a step: goes back over the pass, and after as many as are accumulated, waits for the sums
  // and updates. Replica::minimize() finds the optimiser.
  StepResult minimize(Replica& here, const Loss& loss);

  // Whether the pass has used parameters of this.
  [[nodiscard]] bool trains(const Tape& tape) const;

  // Every rank gets from `root` the parameters, the optimiser's state, the statistics and both
  // counters of steps. All ranks call it, between steps.
  void broadcast_state(int root = 0);
  // The statistics alone: before an evaluation, since each rank has seen other batches.
  void broadcast_statistics(int root = 0);

  // Goes back over a pass, `accumulate` times in a step. In the last one each gradient is submitted
  // as soon as the tape announces it. The loss of a micro-batch without samples may depend on no
  // parameter. Throws what the tape throws, and TrainerError when it is called once too often,
  // where the pass has used what this object was not given (but see
  // OptimizerOptions::part_of_model), and where a gradient has been placed elsewhere since. A
  // loss that is no number makes step() throw NotFinite on all ranks.
  void backward(Tape& tape, const Loss& loss);

  // Before the first backward() of a step, in every step or in none, where the program knows the
  // number of the step otherwise than by counting steps: by its batch. Ranks whose numbers differ,
  // since one has left out a step, all get an Error (RONDE_MISMATCH) from step(). fit() does
  // it, with the weight of this rank's gradients, which counts where its path averages by weights.
  // Nothing is compared where replicas sum their gradients themselves (CrossDeviceOps).
  void begin_step(std::uint64_t number, double weight = 1.0) noexcept {
    number_ = number;
    weight_ = weight;
  }

  // Waits for the sums and updates the parameters, with the same result on every rank. A pass that
  // was not taken counts as one without samples; it is refused where statistics are of all ranks,
  // since the others wait for it in their forward pass. Throws NotFinite, and AgreedError where the
  // ranks are found to differ.
  StepResult step();

  // Collective: the epoch is over. Weights that are averaged each so many steps are, now.
  void end_epoch();

  // Collective, between steps: throws AgreedError on every rank that names the first tensor that
  // differs, the ranks by value, and the step.
  void require_same_replicas();
  // Whether some statistics are summed over the ranks in forward and backward passes.
  [[nodiscard]] bool sums_statistics() const noexcept { return sums_statistics_; }

  [[nodiscard]] UpdateRule& rule() noexcept { return rule_; }
  [[nodiscard]] GradientPath& path() const noexcept { return *path_; }
  [[nodiscard]] const OptimizerOptions& options() const noexcept { return options_; }
  // The options that decide what is learned, in words.
  [[nodiscard]] std::string settings() const;

  // How many steps have been taken: what the schedule counts by.
  [[nodiscard]] std::uint64_t global_step() const noexcept { return global_step_; }
  void set_global_step(std::uint64_t step) noexcept { global_step_ = step; }

  // What the next step takes.
  [[nodiscard]] double learning_rate_now() const {
    return rate_factor_ * learning_rate(options_.schedule, global_step_);
  }
  // Multiplies the schedule's learning rate from the next step on; 1 at first.
  void set_rate_factor(double factor) noexcept { rate_factor_ = factor; }

  // For each parameter, 1 if a pass on this rank has used it.
  [[nodiscard]] std::span<const std::uint8_t> used() const noexcept { return used_; }
  // In the order of used().
  [[nodiscard]] const std::vector<Parameter*>& parameters() const noexcept { return parameters_; }

  // How long this rank has waited for sums, and what ran before it waited.
  [[nodiscard]] double waited_seconds() const { return path_->waited_seconds(); }
  // How long it has worked on sums that were there: their norm, clipping, and the update itself.
  [[nodiscard]] double update_seconds() const noexcept { return update_seconds_; }
  [[nodiscard]] AveragerStatistics averaging() const { return path_->averaging(); }

 private:
  Optimizer(const Model& model, const Network& copy, Replica& here,
            const OptimizerOptions& options);
  class Board;
  using Id = std::size_t;  // the parameter's place among parameters_

  void begin_pass();
  void end_pass();
  void require_every_pass(bool taken) const;
  void require_samples_of_all_ranks();
  void compare_ranks();
  void submit(Id id);
  // Throws NotFinite.
  [[nodiscard]] double norm_of_gradients() const;
  [[nodiscard]] double finite_norm();
  void scale_gradients(float factor);
  void update(double rate);
  StepResult push_and_pull();
  void take_served();
  void keep_statistics();
  void put_statistics_back();

  const Model& model_;
  Replica& here_;
  const std::vector<Parameter*>& parameters_;
  const std::vector<StateTensor>& statistics_;
  std::vector<float> kept_statistics_;  // as they were after the last step, or were broadcast
  const bool sums_statistics_;
  const OptimizerOptions options_;
  UpdateRule rule_;
  std::unordered_map<const Parameter*, Id> ids_;
  std::vector<std::uint8_t> used_;  // by Id, as is the next
  std::vector<std::uint8_t> in_pass_;
  std::vector<const float*> gradients_;  // by Id: where they were registered
  std::uint64_t passes_ = 0;             // of this step, as are the next three
  std::uint64_t samples_ = 0;
  std::uint64_t global_batch_ = 0;  // what its losses were divided by; 0: they do not say
  bool finite_ = true;
  bool finite_here_ = true;  // kWeights: this rank's numbers are still good
  const std::uint64_t check_every_;
  std::uint64_t steps_here_ = 0;
  std::uint64_t global_step_ = 0;
  std::optional<std::uint64_t> number_;  // of the step that begins
  double weight_ = 1.0;                  // likewise
  double rate_factor_ = 1.0;
  double update_seconds_ = 0.0;
  bool is_served_ = false;  // the parameters are the servers'
  // The path goes first, when nothing is in flight any more, and then the memory of gradients.
  std::unique_ptr<Board> board_;
  std::unique_ptr<GradientPath> path_;
  std::vector<std::unique_ptr<Optimizer>> others_;  // of the process's other replicas
};

// Multiplies the learning rate of the schedule by a factor for each epoch (from 0).
class ScaleLearningRate final : public Callback {
 public:
  // The optimiser, this replica's, must outlive this object.
  ScaleLearningRate(Optimizer& optimizer, std::function<double(std::size_t)> factor)
      : optimizer_(optimizer), factor_(std::move(factor)) {}

  void on_start(TrainingState& state) override { optimizer_.set_rate_factor(factor_(state.epoch)); }
  void on_epoch(TrainingState& state) override {
    optimizer_.set_rate_factor(factor_(state.epoch + 1));
  }

 private:
  Optimizer& optimizer_;
  std::function<double(std::size_t)> factor_;
};

}  // namespace ronde::trainer
