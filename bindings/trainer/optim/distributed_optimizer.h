// SPDX-License-Identifier: Apache-2.0
// Makes an optimiser of one process an optimiser of a job: the gradients of all ranks are summed on
// the way. This is all a trainer needs of Ronde, besides the broadcast at the start.
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

#include "bindings/trainer/optim/optimizer.h"
#include "bindings/trainer/optim/schedule.h"
#include "bindings/trainer/optim/served_path.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

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

// Where gradients lie: in memory of the process, or on the board of the host (a ronde::Buffer),
// where the ranks sum them without copying them first. The sums are the same.
enum class Gradients : std::uint8_t { kPlain, kBoard };

// The same on all ranks, but for `overlap`, `bucket_bytes` and `shuffle_seed`.
struct DistributedOptions {
  ScheduleOptions schedule{};
  std::uint64_t accumulate = 1;  // micro-batches of a step on each rank
  double clip_norm = 0.0;        // the largest norm of the summed gradient; 0: whatever it is
  Compression wire = Compression::kNone;
  Gradients gradients = Gradients::kPlain;
  // Whether gradients are submitted while backward goes on; false, for comparison: in step().
  bool overlap = true;
  // Gradients are held back until so many bytes of them are ready. The default suits a host, where
  // to sum small gradients takes less time than to wake the background thread for each of them. A
  // large layer's gradient leaves at once all the same, which is what keeps the line between hosts
  // busy. Over several hosts a model of small layers alone gains from 64 to 256 KiB, which are 0.5
  // to 2 ms of a line of 1 Gbit/s; an MLP's 400 kB would leave in step() otherwise.
  std::size_t bucket_bytes = GradientAverager::kBucketBytes;
  // A test aid. Not 0: gradients are held back until the end of backward, and then submitted in an
  // order that differs per rank and step.
  std::uint64_t shuffle_seed = 0;
  // Others than its own parameters may be used: they stay as they are, and are not broadcast.
  bool part_of_model = false;
  // The ranks have the same parameters in the same memory (Parameter::share_value_of()): rank 0
  // alone updates them, while the others wait.
  bool shared_values = false;
  // Collective: leaves in each gradient the sum over the ranks. Empty: the engine does it, while
  // backward goes on.
  std::function<void(std::span<Parameter* const>)> sum_gradients{};
  // Where the variables live on servers: a step pushes this rank's gradients there and pulls. The
  // optimiser here has what the servers' has kept once it is fetched. It must outlive this object.
  ServedPath* served = nullptr;
};

struct StepResult {
  double learning_rate = 0.0;
  double norm = 0.0;  // of the summed gradient, before it was clipped
};

//   for each step:
//     for each of the `accumulate` micro-batches of this rank:
//       tape.begin(...); optimizer.backward(tape, softmax_cross_entropy(model(...), ...));
//     optimizer.step();
//
// Gradients are summed over micro-batches and ranks, not averaged: a loss is divided by the global
// batch already. A micro-batch's gradient is computed whole before it is added, and Ronde sums the
// ranks of a host in their order; so p ranks of one host get the bits of one rank that accumulates
// p micro-batches, if rank r has the r-th.
//
// Every rank takes every step. In a pass that does not use a parameter its gradient is zeros, and
// so it is in a micro-batch without samples.
//
// Ownership: all arguments of the constructor must outlive this object. If it goes away between
// backward() and step(), as when an exception unwinds, it first waits for what is on its way (with
// as much patience as an engine's close() has), so that nothing is written into memory that goes
// away next. Declare it after the model and the engine.
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
// Thread safety: belongs to the thread of its model.
class DistributedOptimizer {
 public:
  // `parameters` hold those of `optimizer`, and `statistics` the model's, both in the same order on
  // every rank. Throws TrainerError for options that make no sense; with Gradients::kBoard
  // RONDE_OUT_OF_MEMORY where the board has no room for them.
  DistributedOptimizer(Engine& engine, std::vector<Parameter*> parameters,
                       std::vector<StateTensor> statistics, Optimizer& optimizer,
                       const DistributedOptions& options = {});
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;
  ~DistributedOptimizer();

  // Every rank gets from `root` the parameters, the optimiser's state, the statistics and both
  // counters of steps. All ranks call it, between steps.
  void broadcast_state(int root = 0);
  // The statistics alone: before an evaluation, since each rank has seen other batches.
  void broadcast_statistics(int root = 0);

  // Goes back over a pass, `accumulate` times in a step. In the last one each gradient is submitted
  // as soon as the tape announces it. The loss of a micro-batch without samples may depend on no
  // parameter. Throws what the tape throws, and TrainerError when it is called once too often,
  // where the pass has used what this object was not given (but see
  // DistributedOptions::part_of_model), and where a gradient has been placed elsewhere since. A
  // loss that is no number makes step() throw NotFinite on all ranks.
  void backward(Tape& tape, const Loss& loss);

  // Before the first backward() of a step, in every step or in none, where the program knows the
  // number of the step otherwise than by counting steps: by its batch. Ranks whose numbers differ,
  // since one has left out a step, all get an Error (RONDE_MISMATCH) from step(). HostLearner does
  // it. Nothing is compared where replicas sum their gradients themselves (sum_gradients).
  void begin_step(std::uint64_t number) noexcept { number_ = number; }

  // Waits for the sums and updates the parameters, with the same result on every rank. A pass that
  // was not taken counts as one without samples; it is refused where statistics are of all ranks,
  // since the others wait for it in their forward pass. Throws NotFinite, and AgreedError where the
  // ranks are found to differ.
  StepResult step();

  // Collective, between steps: throws AgreedError on every rank that names the first tensor that
  // differs, the ranks by value, and the step.
  void require_same_replicas();
  // Whether some statistics are summed over the ranks in forward and backward passes.
  [[nodiscard]] bool sums_statistics() const noexcept { return sums_statistics_; }

  [[nodiscard]] Optimizer& optimizer() const noexcept { return optimizer_; }
  [[nodiscard]] const DistributedOptions& options() const noexcept { return options_; }
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
  [[nodiscard]] double waited_seconds() const;
  // How long it has worked on sums that were there: their norm, clipping, and the update itself.
  [[nodiscard]] double update_seconds() const noexcept { return update_seconds_; }
  [[nodiscard]] AveragerStatistics averaging() const { return averager_.statistics(); }

 private:
  class Board;
  using Id = GradientAverager::Id;  // the parameter's place among parameters_

  void begin_pass();
  void end_pass();
  void require_every_pass(bool taken) const;
  void require_samples_of_all_ranks();
  void submit(Id id);
  void submit_held_back();
  // Throws NotFinite.
  [[nodiscard]] double norm_of_gradients() const;
  [[nodiscard]] double finite_norm();
  void scale_gradients(float factor);
  void update(double rate);
  StepResult push_and_pull();
  void take_served();
  void keep_statistics();
  void put_statistics_back();

  Engine& engine_;
  const std::vector<Parameter*> parameters_;
  const std::vector<StateTensor> statistics_;
  std::vector<float> kept_statistics_;  // as they were after the last step, or were broadcast
  const bool sums_statistics_;
  Optimizer& optimizer_;
  const DistributedOptions options_;
  std::unordered_map<const Parameter*, Id> ids_;
  std::vector<std::uint8_t> used_;  // by Id, as is the next
  std::vector<std::uint8_t> in_pass_;
  std::vector<const float*> gradients_;  // by Id: where they were registered
  std::uint64_t passes_ = 0;             // of this step, as are the next three
  std::uint64_t samples_ = 0;
  std::uint64_t global_batch_ = 0;  // what its losses were divided by; 0: they do not say
  bool finite_ = true;
  const std::uint64_t check_every_;
  std::uint64_t steps_here_ = 0;
  std::uint64_t global_step_ = 0;
  std::optional<std::uint64_t> number_;  // of the step that begins
  double rate_factor_ = 1.0;
  double update_seconds_ = 0.0;
  bool is_served_ = false;  // the parameters are the servers'
  std::vector<Id> held_back_;
  // The averager goes first, when nothing is in flight any more, and then the memory of gradients.
  std::unique_ptr<Board> board_;
  GradientAverager averager_;
};

}  // namespace ronde::trainer
