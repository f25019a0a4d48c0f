// SPDX-License-Identifier: Apache-2.0
// What may happen beside training: lines, checkpoints, early stopping; progress.h has a bar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/learner.h"
#include "bindings/trainer/fit/metrics.h"
#include "bindings/trainer/fit/replica.h"

namespace ronde::trainer {

// Prints a line for the user.
using PrintLine = std::function<void(const std::string& line)>;

// How far training is. A callback reads it, and may ask to stop.
struct TrainingState {
  std::size_t epoch = 0;  // from 0
  std::size_t epochs = 0;
  std::size_t step = 0;           // done in this epoch
  std::uint64_t global_step = 0;  // done since training began, in earlier runs of fit() as well
  std::uint64_t step_before = 0;  // that before this step: with servers others' may lie between
  std::size_t samples = 0;        // done in this epoch, by all ranks
  std::size_t samples_per_epoch = 0;
  Metrics training;            // of the epoch, over all ranks; at its end
  Metrics validation;          // likewise, where fit() was given data for it
  bool epoch_is_over = false;  // in on_epoch(): all of its steps are done
  // Set by a callback on any rank, at the end of an epoch: training ends here, on all of them. At
  // the start it must be set on all ranks or on none.
  bool stop = false;
  // Set by a callback on all ranks alike, after a step or a batch of the validation: training ends
  // here, and the epoch is not over.
  bool stop_now = false;

  // Whether this step is the one of so many (0: never), or has passed it.
  [[nodiscard]] bool is_one_of(std::uint64_t every) const {
    return every != 0 && global_step / every != step_before / every;
  }
};

// Called by fit() on every rank, in the order in which callbacks were given.
//
// Thread safety: belongs to the thread of fit().
class Callback {
 public:
  Callback() = default;
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;
  virtual ~Callback() = default;

  virtual void on_start(TrainingState& /*state*/) {}
  virtual void on_step(TrainingState& /*state*/) {}
  // After each batch of the validation, which ends where stop_now is set on all ranks.
  virtual void on_validation_batch(TrainingState& /*state*/) {}
  virtual void on_epoch(TrainingState& /*state*/) {}
  virtual void on_end(TrainingState& /*state*/) {}
};

// "step 20: loss 0.512345678, accuracy 0.8125", of classes (else without the accuracy), and numbers
// that are watched, by name, such as a parameter's: ", weight 2.0000".
using Watched = std::vector<std::pair<std::string, const float*>>;
struct StepLines {
  bool classes = true;
  Watched watched{};

  [[nodiscard]] std::string of(std::uint64_t step, const Metrics& metrics) const;
};

// A line each so many steps, over all ranks. Costs a small allreduce, and so a wait, in each of
// these steps.
class LogSteps final : public Callback {
 public:
  // All must outlive this object; `lines` may be null, and is on all ranks but one.
  LogSteps(Replica& replica, const Learner& learner, std::uint64_t every, std::ostream* lines,
           StepLines how = {})
      : replica_(replica), learner_(learner), every_(every), lines_(lines), how_(std::move(how)) {}

  void on_step(TrainingState& state) override;

 private:
  Replica& replica_;
  const Learner& learner_;
  std::uint64_t every_;
  std::ostream* lines_;
  StepLines how_;
};

// Keeps the mean loss of each epoch.
class LossHistory final : public Callback {
 public:
  void on_epoch(TrainingState& state) override { losses_.push_back(state.training.loss()); }
  [[nodiscard]] const std::vector<double>& losses() const noexcept { return losses_; }

 private:
  std::vector<double> losses_;
};

// The quantity that early stopping and the best checkpoint go by: the loss of the validation data
// where fit() has some, and that of the training otherwise. It is the same on all ranks.
[[nodiscard]] double watched_loss(const TrainingState& state);

// Ends training, on all ranks after the same epoch, when the watched loss has not been better than
// its best by `least_gain` for `patience` epochs.
class EarlyStopping final : public Callback {
 public:
  // `numbers` is where the best loss and the epochs since then are kept (Supervisor::numbers(), or
  // a map of the program's), and must outlive this object. `say` prints on one rank, and may be
  // empty.
  EarlyStopping(std::map<std::string, double>& numbers, std::uint64_t patience, double least_gain,
                PrintLine say)
      : numbers_(numbers), patience_(patience), least_gain_(least_gain), say_(std::move(say)) {}

  // Warns of a patience that the epochs that are left can never reach.
  void on_start(TrainingState& state) override;
  void on_epoch(TrainingState& state) override;

 private:
  [[nodiscard]] std::uint64_t epochs_without_gain() const;

  std::map<std::string, double>& numbers_;
  std::uint64_t patience_;
  double least_gain_;
  PrintLine say_;
};

}  // namespace ronde::trainer
