// SPDX-License-Identifier: Apache-2.0
// Steps, epochs, and what the ranks have to agree on between them.
#include "bindings/trainer/fit/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "bindings/trainer/fit/agreement.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

class Run {
 public:
  Run(Replica& replica, Learner& learner, const Dataset& data, const FitOptions& options,
      std::span<Callback* const> callbacks, const Dataset* validation)
      : replica_(replica),
        learner_(learner),
        data_(data),
        options_(options),
        callbacks_(callbacks),
        validation_(validation),
        path_(learner.path()),
        served_(path_.is_served()),
        own_(data.is_own() && replica.size() > 1) {
    state_.epochs = options.epochs;
    state_.samples_per_epoch = data.samples().value_or(0);
    state_.epoch = options.first_epoch;
    state_.global_step = options.first_global_step;
    state_.samples = std::min(options.first_step * data.global_batch(), state_.samples_per_epoch);
  }

  FitResult run() {
    (void)learner_.take_metrics();  // what a loop has left that was stopped, or has failed
    if (!served_) require_shares(replica_, data_);
    path_.begin();
    if (!served_) path_.average_by_weights(own_);
    learner_.broadcast_state(0);
    find_place();
    const std::uint64_t first_step = state_.global_step;
    try_shapes();
    const LearnerTimes before = learner_.times();
    const double transferred = replica_.transfer_seconds();
    tell(&Callback::on_start);
    stopped_ = state_.stop;
    if (served_) learner_.broadcast_statistics(0);  // what was pulled may be old by now
    const double begin = steady_seconds();
    const double waited = replica_.waited_seconds();
    while (state_.epoch < options_.epochs && !over()) {
      run_epoch(state_.epoch);
      find_place();
      if (!served_ || !data_.steps()) ++state_.epoch;
    }
    result_.seconds = steady_seconds() - begin - paused_;
    if (served_) end_served(first_step);
    const LearnerTimes after = learner_.times();
    result_.wait_seconds = after.waited_seconds - before.waited_seconds +
                           (replica_.waited_seconds() - waited - waited_paused_);
    result_.share_before_wait = after.share_before_wait;
    measure_parts(before, after);
    result_.transfer_seconds = replica_.transfer_seconds() - transferred;
    result_.straggler = straggler(result_.wait_seconds);
    if (own_) path_.average_by_weights(false);
    result_.cut_short = state_.stop_now;
    tell(&Callback::on_end);
    return result_;
  }

 private:
  // What is neither overlapped with a transfer nor spent on it or behind it, came before it.
  void measure_parts(const LearnerTimes& before, const LearnerTimes& after) {
    result_.update_seconds = after.update_seconds - before.update_seconds;
    const double overlapped = after.overlapped_seconds - before.overlapped_seconds;
    if (result_.update_seconds == 0.0) return;
    // Waits of the model itself (normalisation over all ranks) lie before or in the overlap.
    result_.first_gradient_seconds = result_.seconds - (result_.wait_seconds - waited_in_steps_) -
                                     overlapped - result_.update_seconds;
  }

  [[nodiscard]] bool over() const {
    return stopped_ || state_.stop_now || cut() || path_.stopped() != Stop::kNo;
  }
  [[nodiscard]] bool cut() const {
    return options_.most_steps != 0 && !path_.is_sent_data() &&
           state_.global_step - options_.first_global_step >= options_.most_steps;
  }

  // Where all workers stand, who step the same variables, is what the servers say. This one goes on
  // in its own share of the data, and in rounds of all workers with the batch of the next round.
  void find_place() {
    if (!served_) return;
    state_.global_step = path_.global_step();
    const std::uint64_t steps = data_.steps().value_or(0);
    if (steps == 0 || path_.is_sent_data()) return;
    const std::uint64_t each = steps * path_.steps_per_batch();
    state_.epoch = state_.global_step / each;
    state_.step = state_.global_step % each / path_.steps_per_batch();
    state_.samples = std::min(samples_of(state_.global_step % each), state_.samples_per_epoch);
  }
  [[nodiscard]] std::size_t samples_of(std::uint64_t steps) const {
    return steps * data_.global_batch() / path_.steps_per_batch();
  }

  // The epoch is over when the servers have made its steps. It keeps its number until its end was
  // told.
  void end_epoch_of_all(std::size_t epoch) {
    if (!data_.steps() || state_.epoch == epoch) return;
    state_.epoch = epoch;
    state_.step = *data_.steps();
    state_.samples = state_.samples_per_epoch;
    state_.epoch_is_over = true;
  }

  // The chief waits for all who have something under way, and the others until it has.
  void end_served(std::uint64_t first_step) {
    result_.samples = samples_of(state_.global_step - std::min(first_step, state_.global_step));
    path_.end();
    learner_.broadcast_statistics(0);
    find_place();
  }

  void tell(void (Callback::*what)(TrainingState&)) {
    for (Callback* const callback : callbacks_) (callback->*what)(state_);
  }

  // A model that does not fit is an error of the program, the same on every rank, and one says it.
  void try_shapes() {
    if (!path_.reads_data()) return;
    Epoch first = data_.epoch(options_.first_epoch);
    const StepBatch* batch = nullptr;
    succeed_on_all(replica_, [&] {
      batch = first.next();
      if (batch == nullptr) {
        throw TrainerError("there are no samples to train on: give some", kExitConfiguration);
      }
    });
    // Only now, since it may be collective, too.
    succeed_on_all(replica_, [&] {
      try {
        learner_.try_shapes(batch->parts.front());
      } catch (const TrainerError& error) {
        throw TrainerError(error.what(), kExitConfiguration);
      }
    });
  }

  void run_epoch(std::size_t epoch) {
    const bool goes_on = epoch == options_.first_epoch;
    std::size_t first_step = goes_on ? options_.first_step : 0;
    state_.epoch_is_over = false;
    if (!served_) {
      state_.step = first_step;
      state_.samples = std::min(first_step * data_.global_batch(), state_.samples_per_epoch);
      data_epoch_ = epoch;
      batches_.emplace(data_.epoch(epoch, first_step));
    } else {
      first_step = state_.step;
      if (!batches_ && data_.steps().value_or(0) != 0) {
        open_at(state_.global_step / path_.steps_per_batch());
      } else if (!data_.steps()) {
        batches_.emplace(data_.epoch(epoch));
      }
    }
    std::exception_ptr failure;
    try {
      take_steps();
    } catch (const AgreedError&) {
      if (!own_) throw;
      failure = std::current_exception();  // a rank that has joined does not know of it yet
    }
    if (own_) meet_again(failure);
    if (state_.stop_now) return;
    Metrics mine = learner_.take_metrics();
    if (goes_on && first_step != 0 && replica_.is_chief()) mine.add(options_.first_sums);
    state_.training = over_ranks(replica_, "fit/metrics", mine);
    if (!std::isfinite(state_.training.loss())) {
      const std::string task = served_ ? path_.task() + ": " : "";
      throw AgreedError(task + "the loss of epoch " + std::to_string(epoch + 1) +
                            " is not a finite number: use a smaller learning rate or momentum",
                        0, kExitConfiguration);
    }
    const bool has_learned = !served_ || (state_.training.samples > 0.0 && !path_.sends_data());
    if (goes_on && first_step == 0 && state_.epoch_is_over && has_learned) require_all_used();
    result_.training = state_.training;
    const bool validates = !served_ || replica_.is_chief();
    if (validation_ != nullptr && validates && !validate()) return;
    tell(&Callback::on_epoch);
    agree_to_stop();
  }

  // Those of an epoch, from where it is.
  void take_steps() {
    while (!over() && !state_.epoch_is_over) {
      const StepBatch* const batch = next();
      state_.epoch_is_over = batch == nullptr;
      if (batch != nullptr) step(*batch);
      // The others hear of it when weights are averaged, at the end of the epoch at the latest.
      if (path_.is_local() && batch == &failed_) state_.epoch_is_over = true;
    }
    if (!own_ && state_.stop_now) return;
    if (cut() && !served_) state_.epoch_is_over = next() == nullptr;
    try {
      learner_.end_epoch();
    } catch (const NotFiniteStep& error) {
      refuse_step(error);
    }
  }

  // This rank's batches are at their end, or all ranks stop here. The others' steps go on without
  // it; whoever took the last ones has what they have made, or why they have failed.
  void meet_again(const std::exception_ptr& failure) {
    const int last = path_.join();
    learner_.broadcast_state(last);
    std::array<double, 5> most{static_cast<double>(state_.global_step),
                               static_cast<double>(state_.step), state_.stop_now ? 1.0 : 0.0,
                               state_.epoch_is_over ? 0.0 : 1.0, failure ? 1.0 : 0.0};
    replica_.allreduce("fit/joined", most, Reduction::kMax);
    if (most[4] != 0.0) {
      succeed_on_all(replica_, [&] {
        if (failure) std::rethrow_exception(failure);
      });
    }
    state_.global_step = static_cast<std::uint64_t>(most[0]);
    state_.step = static_cast<std::size_t>(most[1]);
    state_.stop_now = most[2] != 0.0;
    state_.epoch_is_over = most[3] == 0.0;
    std::array<double, 1> samples{static_cast<double>(std::exchange(samples_here_, 0))};
    replica_.allreduce("fit/samples", samples, Reduction::kSum);
    result_.samples += static_cast<std::size_t>(samples[0]);
    result_.steps = state_.global_step - options_.first_global_step;
  }

  // The next of this task's own share, however often others have been through theirs.
  const StepBatch* next_served() {
    if (!path_.reads_data()) return &(none_ = data_.no_samples());
    if (data_.steps().value_or(0) == 0) return batches_->next();
    const std::uint64_t place = state_.global_step / path_.steps_per_batch();
    // A round may have gone by without this worker.
    if (path_.in_rounds() && position_ != place) open_at(place);
    const StepBatch* found = batches_->next();
    if (found == nullptr) {
      open_at(position_);
      found = batches_->next();
    }
    ++position_;
    return found;
  }
  void open_at(std::uint64_t position) {
    const std::uint64_t steps = *data_.steps();
    position_ = position;
    data_epoch_ = position / steps;
    batches_.emplace(data_.epoch(data_epoch_, position % steps));
  }

  // Where this rank cannot have its next batch, all of them learn why in that step.
  const StepBatch* next() {
    try {
      return served_ ? next_served() : batches_->next();
    } catch (const std::exception& error) {
      failed_ = data_.no_samples();
      failed_.failure = error.what();
      failed_.step = state_.step;
      return &failed_;
    }
  }

  // Whether it came to its end.
  bool validate() {
    const double begin = steady_seconds();
    const double waited = replica_.waited_seconds();
    state_.validation = evaluate(replica_, learner_, *validation_, [this] {
      tell(&Callback::on_validation_batch);
      return state_.stop_now;
    });
    if (served_) learner_.broadcast_statistics(0);  // what others have learned meanwhile
    paused_ += steady_seconds() - begin;
    waited_paused_ += replica_.waited_seconds() - waited;
    return !state_.stop_now;
  }

  // A callback may be there on one rank only, or go by that rank's clock.
  void agree_to_stop() {
    std::array<double, 1> stop{state_.stop ? 1.0 : 0.0};
    replica_.allreduce("fit/stop", stop, Reduction::kMax);
    stopped_ = state_.stop = stop[0] != 0.0;
    if (stopped_) path_.stop(Stop::kEnded);
  }

  void step(const StepBatch& batch) {
    const double waited = replica_.waited_seconds();
    state_.step_before = state_.global_step;
    try {
      learner_.step(batch, data_epoch_);
    } catch (const NotFiniteStep& error) {
      refuse_step(error);
    }
    waited_in_steps_ += replica_.waited_seconds() - waited;
    ++result_.steps;
    if (served_) {
      const std::size_t epoch = state_.epoch;
      find_place();
      end_epoch_of_all(epoch);
    } else {
      ++state_.step;
      ++state_.global_step;
      state_.samples += batch.global_size;
      (own_ ? samples_here_ : result_.samples) += batch.global_size;
    }
    tell(&Callback::on_step);
  }

  // Every rank has seen the same summed gradient; the first whose own numbers were bad says where.
  [[noreturn]] void refuse_step(const NotFiniteStep& error) {
    if (served_) {
      throw TrainerError(
          path_.task() + ", after step " + std::to_string(state_.global_step) +
              " of the servers: " + (error.here().empty() ? error.what() : error.here()),
          error.exit_code());
    }
    succeed_on_all(replica_, [&] {
      if (error.here().empty()) return;
      throw TrainerError("step " + std::to_string(state_.step + 1) + " of epoch " +
                             std::to_string(state_.epoch + 1) + ": rank " +
                             std::to_string(replica_.rank()) + ": " + error.here(),
                         error.exit_code());
    });
    throw AgreedError(error.what(), 0, kExitConfiguration);
  }

  void require_all_used() {
    std::string mine = "\n";
    for (const std::string& name : learner_.unused()) mine += name + '\n';
    const std::vector<std::string> all = gather_texts(replica_, "fit/unused", mine);
    std::string names;
    for (const std::string& name : learner_.unused()) {
      const auto has = [&](const std::string& text) {
        return text.find('\n' + name + '\n') != std::string::npos;
      };
      if (std::ranges::all_of(all, has)) names += (names.empty() ? "" : ", ") + name;
    }
    if (names.empty()) return;
    throw AgreedError("no rank has used these parameters in the first epoch: " + names +
                          ": call their layer in the model, or do not list them",
                      0, kExitConfiguration);
  }

  int straggler(double waited) {
    std::vector<float> seconds(static_cast<std::size_t>(replica_.size()), 0.0F);
    seconds[static_cast<std::size_t>(replica_.rank())] = static_cast<float>(waited);
    replica_.allreduce("fit/waited", seconds, Reduction::kSum);
    return static_cast<int>(std::ranges::min_element(seconds) - seconds.begin());
  }

  Replica& replica_;
  Learner& learner_;
  const Dataset& data_;
  const FitOptions options_;
  std::span<Callback* const> callbacks_;
  const Dataset* validation_;
  GradientPath& path_;
  const bool served_;  // others step the same variables
  const bool own_;     // others have other numbers of batches
  TrainingState state_;
  FitResult result_;
  std::optional<Epoch> batches_;
  std::uint64_t data_epoch_ = 0;  // whose batches these are
  std::uint64_t position_ = 0;    // served: of the next one, in batches since training began
  StepBatch failed_;
  StepBatch none_;
  std::size_t samples_here_ = 0;  // own: of this rank in this epoch
  bool stopped_ = false;
  double paused_ = 0.0;  // for validation, and of that:
  double waited_paused_ = 0.0;
  double waited_in_steps_ = 0.0;  // by the model, not for gradients
};

}  // namespace

FitResult fit(Replica& replica, Learner& learner, const Dataset& data, const FitOptions& options,
              std::span<Callback* const> callbacks, const Dataset* validation) {
  return Run(replica, learner, data, options, callbacks, validation).run();
}

}  // namespace ronde::trainer
