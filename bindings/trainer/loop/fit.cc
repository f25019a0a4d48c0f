// SPDX-License-Identifier: Apache-2.0
// Steps, epochs, and what the ranks have to agree on between them.
#include "bindings/trainer/loop/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "bindings/trainer/loop/agreement.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

// Every sample is one rank's: the ranks have the same batches, and each its own part of them. Or
// else a step would take some samples several times, at a learning rate as much higher.
void require_shares(Replica& replica, const Dataset& data) {
  constexpr const char* kCut = ", cut for rank ";
  const Share mine = data.share();
  const std::vector<std::string> all = gather_texts(
      replica, "loop/data",
      data.settings() + kCut + std::to_string(mine.rank) + " of " + std::to_string(mine.ranks));
  const std::string same = all[0].substr(0, all[0].rfind(kCut)) + kCut;
  const std::string ranks = std::to_string(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == same + std::to_string(rank) + " of " + ranks) continue;
    throw AgreedError("the data is not cut between the " + ranks + " ranks: it is " +
                          grouped_by_value(all) +
                          ": give every rank the same batches, and call shard(rank, ranks) on them",
                      0, kExitConfiguration);
  }
}

class Run {
 public:
  Run(Replica& replica, Learner& learner, const Dataset& data, const FitOptions& options,
      std::span<Callback* const> callbacks, const Dataset* validation)
      : replica_(replica),
        learner_(learner),
        data_(data),
        options_(options),
        callbacks_(callbacks),
        validation_(validation) {
    state_.epochs = options.epochs;
    state_.samples_per_epoch = data.samples().value_or(0);
    state_.epoch = options.first_epoch;
    state_.global_step = options.first_global_step;
    state_.samples = std::min(options.first_step * data.global_batch(), state_.samples_per_epoch);
  }

  FitResult run() {
    (void)learner_.take_metrics();  // what a loop has left that was stopped, or has failed
    require_shares(replica_, data_);
    learner_.broadcast_state(0);
    try_shapes();
    const LearnerTimes before = learner_.times();
    const double transferred = replica_.transfer_seconds();
    tell(&Callback::on_start);
    stopped_ = state_.stop;
    const double begin = steady_seconds();
    const double waited = replica_.waited_seconds();
    for (std::size_t epoch = options_.first_epoch; epoch < options_.epochs && !over(); ++epoch) {
      run_epoch(epoch);
    }
    result_.seconds = steady_seconds() - begin - paused_;
    const LearnerTimes after = learner_.times();
    result_.wait_seconds = after.waited_seconds - before.waited_seconds +
                           (replica_.waited_seconds() - waited - waited_paused_);
    result_.share_before_wait = after.share_before_wait;
    measure_parts(before, after);
    result_.transfer_seconds = replica_.transfer_seconds() - transferred;
    result_.straggler = straggler(result_.wait_seconds);
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

  [[nodiscard]] bool over() const { return stopped_ || state_.stop_now || cut(); }
  [[nodiscard]] bool cut() const {
    return options_.most_steps != 0 && result_.steps >= options_.most_steps;
  }

  void tell(void (Callback::*what)(TrainingState&)) {
    for (Callback* const callback : callbacks_) (callback->*what)(state_);
  }

  // A model that does not fit is an error of the program, the same on every rank, and one says it.
  void try_shapes() {
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
    const std::size_t first_step = epoch == options_.first_epoch ? options_.first_step : 0;
    state_.epoch = epoch;
    state_.step = first_step;
    state_.samples = std::min(first_step * data_.global_batch(), state_.samples_per_epoch);
    state_.epoch_is_over = false;
    Epoch batches = data_.epoch(epoch, first_step);
    while (!over() && !state_.epoch_is_over) {
      const StepBatch* const batch = next(batches);
      state_.epoch_is_over = batch == nullptr;
      if (batch != nullptr) step(*batch, epoch);
    }
    if (state_.stop_now) return;
    if (cut()) state_.epoch_is_over = next(batches) == nullptr;
    Metrics mine = learner_.take_metrics();
    if (first_step != 0 && replica_.is_chief()) mine.add(options_.first_sums);
    state_.training = over_ranks(replica_, "fit/metrics", mine);
    if (!std::isfinite(state_.training.loss())) {
      throw AgreedError("the loss of epoch " + std::to_string(epoch + 1) +
                            " is not a finite number: use a smaller learning rate or momentum",
                        0, kExitConfiguration);
    }
    if (epoch == options_.first_epoch && first_step == 0 && state_.epoch_is_over) {
      require_all_used();
    }
    result_.training = state_.training;
    if (validation_ != nullptr && !validate()) return;
    tell(&Callback::on_epoch);
    agree_to_stop();
  }

  // Where this rank cannot have its next batch, all of them learn why in that step.
  const StepBatch* next(Epoch& batches) {
    try {
      return batches.next();
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
    paused_ += steady_seconds() - begin;
    waited_paused_ += replica_.waited_seconds() - waited;
    return !state_.stop_now;
  }

  // A callback may be there on one rank only, or go by that rank's clock.
  void agree_to_stop() {
    std::array<double, 1> stop{state_.stop ? 1.0 : 0.0};
    replica_.allreduce("fit/stop", stop, Reduction::kMax);
    stopped_ = state_.stop = stop[0] != 0.0;
  }

  void step(const StepBatch& batch, std::size_t epoch) {
    const double waited = replica_.waited_seconds();
    try {
      learner_.step(batch, epoch);
    } catch (const NotFiniteStep& error) {
      refuse_step(error);
    }
    waited_in_steps_ += replica_.waited_seconds() - waited;
    ++state_.step;
    ++state_.global_step;
    ++result_.steps;
    state_.samples += batch.global_size;
    result_.samples += batch.global_size;
    tell(&Callback::on_step);
  }

  // Every rank has seen the same summed gradient; the first whose own numbers were bad says where.
  [[noreturn]] void refuse_step(const NotFiniteStep& error) {
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
  TrainingState state_;
  FitResult result_;
  StepBatch failed_;
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

Metrics evaluate(Replica& replica, Learner& learner, const Dataset& data,
                 const std::function<bool()>& stop) {
  require_shares(replica, data);
  learner.broadcast_statistics(0);
  Metrics mine;
  Epoch batches = data.epoch(0);
  std::exception_ptr failure;
  bool has_batches = true;  // they can still be had
  for (std::size_t step = 0;; ++step) {
    const StepBatch* batch = nullptr;
    try {
      if (has_batches) batch = batches.next();
      if (batch != nullptr && !failure) {
        for (const Batch& part : batch->parts) mine.add(learner.evaluate(part));
      }
    } catch (const std::exception&) {
      has_batches = batch != nullptr;  // then it is the model that has failed
      failure = std::current_exception();
    }
    // A rank that has failed asks whether to stop as often as the others.
    if (has_batches ? batch == nullptr : step >= data.steps().value_or(0)) break;
    if (stop && stop()) break;
  }
  succeed_on_all(replica, [&] {
    if (failure) std::rethrow_exception(failure);
  });
  const Metrics all = over_ranks(replica, "evaluate/metrics", mine);
  if (!std::isnan(all.loss_sum)) return all;
  throw AgreedError(
      "the loss of the evaluation is not a number: look for NaN in the data, or train "
      "again from before the parameters became so",
      0);
}

Predictions in_order(std::span<const std::uint32_t> samples, std::span<const float> outputs) {
  std::vector<std::pair<std::uint32_t, std::size_t>> rows;  // samples, and where each came
  for (const std::uint32_t sample : samples) rows.emplace_back(sample, rows.size());
  std::ranges::sort(rows);
  const std::size_t each = rows.empty() ? 0 : outputs.size() / rows.size();
  Predictions predictions;
  for (const auto& [sample, row] : rows) {
    const std::span<const float> values = outputs.subspan(row * each, each);
    if (std::ranges::any_of(values, [](float value) { return std::isnan(value); })) {
      throw TrainerError("an output for sample " + std::to_string(sample) +
                         " is not a number: look for NaN in the data and the parameters");
    }
    predictions.samples.push_back(sample);
    predictions.outputs.insert(predictions.outputs.end(), values.begin(), values.end());
  }
  return predictions;
}

Predictions predict(Replica& replica, Learner& learner, const Dataset& data) {
  require_shares(replica, data);
  learner.broadcast_statistics(0);
  Predictions predictions;
  succeed_on_all(replica, [&] {
    std::vector<std::uint32_t> samples;
    std::vector<float> outputs;
    Epoch batches = data.epoch(0);
    while (const StepBatch* const batch = batches.next()) {
      for (const Batch& part : batch->parts) {
        const std::vector<float> more = learner.predict(part);
        outputs.insert(outputs.end(), more.begin(), more.end());
        samples.insert(samples.end(), part.samples.begin(), part.samples.end());
      }
    }
    predictions = in_order(samples, outputs);
  });
  return predictions;
}

}  // namespace ronde::trainer
