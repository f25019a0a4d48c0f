// SPDX-License-Identifier: Apache-2.0
// The chief's saves and restores, and the agreement of the ranks in every step.
#include "bindings/trainer/keep/supervisor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bindings/trainer/fit/agreement.h"
#include "bindings/trainer/fit/progress.h"
#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/keep/checkpoint_names.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

// How many parts a batch has, which decides its rounding.
constexpr const char* kParts = "supervisor/parts";

// Parameters, statistics and moments, in an order that is the same on every rank.
std::vector<StateTensor> tensors_of(const Network& model, UpdateRule& rule) {
  std::vector<StateTensor> tensors;
  for (Parameter* const one : model.parameters()) {
    tensors.push_back({one->name(), one->shape(), one->value()});
  }
  for (const StateTensor& one : model.statistics()) tensors.push_back(one);
  for (const StateTensor& one : rule.state()) tensors.push_back(one);
  return tensors;
}

// With other flags it would be another training, wherever it ends.
std::string goal_with_flags(std::string goal, const Flags& flags) {
  for (const auto& [name, value] : flags) goal += ' ' + name + ' ' + value;
  return goal;
}

// When a training must have stopped, in seconds from now: max_seconds, or, where it can save, a
// good while before Slurm ends its job. Empty: there is no such time.
std::optional<double> seconds_to_stop(double max_seconds, bool saves) {
  if (max_seconds > 0.0) return max_seconds;
  const auto text = variable("SLURM_JOB_END_TIME");
  if (!text || !saves) return std::nullopt;
  double end = 0.0;
  const char* const last = text->data() + text->size();
  // A date begins with a year, which would be taken for seconds.
  if (std::from_chars(text->data(), last, end).ptr != last || end <= 0.0) return std::nullopt;
  constexpr double kLongest = 120.0;
  constexpr double kShare = 0.1;
  const double left = end - static_cast<double>(std::time(nullptr));
  return left - std::min(kLongest, kShare * left);
}

std::string job_of_restarts() { return variable("RONDE_RESTART_JOB").value_or(""); }

void require_other_names(const std::vector<StateTensor>& tensors) {
  std::set<std::string> names;
  for (const StateTensor& one : tensors) {
    if (names.insert(one.name).second) continue;
    throw TrainerError("two tensors are called " + one.name +
                       ": a checkpoint needs a name for each");
  }
}

}  // namespace

Supervisor::Supervisor(Replica& here, Optimizer& optimizer, SupervisorOptions options)
    : replica_(here),
      optimizer_(optimizer.of(here)),
      options_(std::move(options)),
      tensors_(tensors_of(optimizer.model().copy(here.local()), optimizer_.rule())),
      statistics_(optimizer.model().copy(here.local()).statistics()) {
  require_other_names(tensors_);
}

Supervisor::~Supervisor() { path().saved(nullptr); }

void Supervisor::say(const std::string& line) const {
  if (options_.say) {
    options_.say(line);
    return;
  }
  std::puts(line.c_str());
  std::fflush(stdout);
}

void Supervisor::managed_session(const std::function<void()>& body) {
  signals_.emplace();
  begin();
  if (!result_) {
    try {
      body();
    } catch (const Error& error) {
      save_for_the_dead(error);
      throw;
    }
    path().end();  // where no fit() has done so
    if (is_served()) stopping_ = path().stopped() == Stop::kStopped;
    end();
  } else {  // the training has finished before: other tasks end, too
    path().begin();
    path().stop(Stop::kEnded);
    path().end();
  }
  signals_.reset();
}

void Supervisor::begin() {
  succeed_on_all(replica_, [this] {
    if (is_chief()) restore_on_chief();
  });
  share_state();
  if (is_chief() || is_served()) {  // a stop of any task stops all
    const auto left = seconds_to_stop(options_.max_seconds, saves_ || is_served());
    if (left) stop_at_ = steady_seconds() + *left;
  }
  sums_before_ = state_.epoch_sums;
  keep_statistics();
  last_save_ = steady_seconds();
}

// Every forward pass changes them, also that of a step that fails.
void Supervisor::keep_statistics() {
  if (!checkpoints_) return;
  kept_statistics_.clear();
  for (const StateTensor& one : statistics_) {
    kept_statistics_.emplace_back(one.values.begin(), one.values.end());
  }
}

void Supervisor::restore_on_chief() {
  std::optional<CheckpointState> found;
  const auto parts = static_cast<double>(replica_.strategy().num_replicas_in_sync() *
                                         optimizer_.options().accumulate);
  Flags flags = options_.flags;
  flags.emplace_back("optimizer", optimizer_.rule().settings());
  flags.emplace_back("steps", optimizer_.settings());
  if (!options_.logdir.empty()) {
    const auto timeout = std::chrono::duration_cast<Worker::Span>(
        std::chrono::duration<double>(options_.save_timeout));
    checkpoints_ = std::make_unique<Checkpoints>(
        CheckpointOptions{options_.logdir, options_.keep, options_.after_save, timeout},
        [this](const std::string& line) { say(line); }, *options_.files);
    found = checkpoints_->restore({.how = options_.restore,
                                   .job = job_of_restarts(),
                                   .flags = flags,
                                   .accept_changes = options_.accept_changes},
                                  tensors_);
    const TrainingRecord& record = checkpoints_->record();
    if (found && record.finished_step == found->global_step &&
        record.goal == goal_with_flags(options_.goal, flags)) {
      result_ = record.result;
    } else {
      checkpoints_->set_finished({});  // of another training, or of a shorter one
    }
  }
  if (found) {
    state_ = std::move(*found);
    saved_step_ = state_.global_step;
    path().restored(state_.global_step);
    tell_of_save();
    if (!result_) say_resumed(parts);
  } else {
    state_.optimizer_steps = optimizer_.rule().steps();
  }
  state_.numbers[kParts] = parts;
  state_.flags = std::move(flags);
  state_.moments.clear();
  for (const StateTensor& one : optimizer_.rule().state()) state_.moments.push_back(one.name);
}

void Supervisor::say_resumed(double parts) const {
  say("resumed at step " + std::to_string(state_.global_step) + " (step " +
      std::to_string(state_.step_in_epoch) + " of epoch " + std::to_string(state_.epoch + 1) +
      ") from " + options_.logdir);
  const auto before = state_.numbers.find(kParts);
  if (before == state_.numbers.end() || before->second == parts) return;
  say("a batch is cut into " + std::to_string(static_cast<int>(parts)) + " parts from here on, " +
      "and was cut into " + std::to_string(static_cast<int>(before->second)) +
      ": results agree to rounding, and not with a normalisation over each part alone");
}

// Broadcasts the chief's state, which is small, as text, and its tensors.
void Supervisor::share_state() {
  std::string mine;
  if (replica_.rank() == 0) {  // with servers each task is rank 0 of its own
    mine = nlohmann::json{{"result", result_ ? nlohmann::json(*result_) : nlohmann::json()},
                          {"saves", checkpoints_ != nullptr},
                          {"state", to_state_json(state_, "")}}
               .dump();
  }
  const auto texts = gather_texts(replica_, "supervisor/state", mine);
  for (const StateTensor& one : tensors_) {
    replica_.broadcast("supervisor/" + one.name, one.values, 0);
  }
  for (Parameter* const one : optimizer_.parameters()) one->changed();
  const auto shared = nlohmann::json::parse(texts.front());
  state_ = from_state_json(shared.at("state"), "the chief's state").first;
  saves_ = shared.at("saves");
  if (shared.at("result").is_string()) result_ = shared.at("result");
  optimizer_.rule().set_steps(state_.optimizer_steps);
  optimizer_.set_global_step(state_.global_step);
  optimizer_.broadcast_statistics();  // kept there, for a step that is refused
  if (!is_served()) return;
  count_served();
  saves_ = saves_ || !is_chief();  // the chief saves for all
}

void Supervisor::step_done(const Metrics& mine) {
  const bool asked = signals_ && signals_->take_save_asked();
  const bool due = checkpoints_ && (save_asked_ || is_time_to_save());
  std::array<double, 6> numbers{stop_wanted() ? 1.0 : 0.0,
                                asked ? 1.0 : 0.0,
                                mine.loss_sum,
                                mine.correct,
                                mine.samples,
                                due ? 1.0 : 0.0};
  try {
    replica_.allreduce("supervisor/step", numbers, Reduction::kSum);
  } catch (const Error&) {
    count_step();  // it is complete, only its sums are missing
    throw;
  }
  count_step();
  stopping_ = numbers[0] != 0.0;
  stop_served();
  save_asked_ = save_asked_ || numbers[1] != 0.0;
  state_.epoch_sums = {numbers[2], numbers[3], numbers[4]};
  state_.epoch_sums.add(sums_before_);
  // A stop is saved at the end of the session.
  if (stopping_ || (numbers[1] == 0.0 && numbers[5] == 0.0)) return;
  require_same_replicas();
  save({}, {});
}

// The saved state is that of all ranks.
void Supervisor::require_same_replicas() {
  if (saves_ && !path().is_local()) optimizer_.require_same_replicas();
}

void Supervisor::count_step() {
  ++state_.global_step;
  ++state_.step_in_epoch;
  state_.optimizer_steps = optimizer_.rule().steps();
  count_served();
  keep_statistics();
}

void Supervisor::count_served() {
  if (is_served()) state_.global_step = state_.optimizer_steps = path().global_step();
}

void Supervisor::set_place(std::uint64_t epoch, std::uint64_t step_in_epoch) noexcept {
  if (!is_served()) return;
  state_.epoch = epoch;
  state_.step_in_epoch = step_in_epoch;
}

// A server that begins anew goes on from there.
void Supervisor::tell_of_save() {
  path().saved([this, path = checkpoint_path(options_.logdir, state_.global_step)] {
    (void)checkpoints_->flush();
    return path;
  });
}

// What one task decides, the others see on the servers.
void Supervisor::stop_served() {
  if (!is_served()) return;
  if (stopping_) path().stop(Stop::kStopped);
  stopping_ = path().stopped() == Stop::kStopped;
}

bool Supervisor::stop_wanted() {
  stop_asked_ = stop_asked_ || (signals_ && signals_->stop_asked()) ||
                (stop_at_ && steady_seconds() >= *stop_at_);
  return stop_asked_;
}

void Supervisor::look() {
  std::array<double, 1> stop{stop_wanted() ? 1.0 : 0.0};
  replica_.allreduce("supervisor/look", stop, Reduction::kMax);
  stopping_ = stop[0] != 0.0;
  stop_served();
}

// After the step that is being counted.
bool Supervisor::is_time_to_save() const {
  const std::uint64_t every = options_.save_steps;
  const bool by_steps =
      every != 0 && (!is_served() ? (state_.global_step + 1) % every == 0
                                  : path().global_step() / every != state_.global_step / every);
  const bool by_time =
      options_.save_model_secs > 0.0 && steady_seconds() - last_save_ >= options_.save_model_secs;
  return by_steps || by_time;
}

void Supervisor::epoch_done(std::optional<double> metric) {
  require_same_replicas();
  ++state_.epoch;
  state_.step_in_epoch = 0;
  sums_before_ = state_.epoch_sums = {};
  if (!checkpoints_ || !metric || !checkpoints_->is_best(*metric)) return;
  // Waits for a disk that hangs once, not in each epoch.
  save(metric, waited_for_ == saved_step_ ? Worker::Span{} : checkpoints_->patience());
}

void Supervisor::save() {
  if (checkpoints_ && saved_step_ != state_.global_step) save({}, checkpoints_->patience());
}

bool Supervisor::save(std::optional<double> best, Worker::Span patience) {
  if (!checkpoints_) return false;
  last_save_ = steady_seconds();
  path().fetch();
  count_served();
  if (checkpoints_->save(state_, tensors_, best, patience)) {
    saved_step_ = state_.global_step;
    save_asked_ = false;
    tell_of_save();
    return true;
  }
  if (patience > Worker::Span{}) waited_for_ = saved_step_;
  if (std::exchange(passed_over_beside_, saved_step_) != saved_step_) {
    say("the checkpoint of step " + std::to_string(saved_step_.value_or(0)) +
        " is still being written: that of step " + std::to_string(state_.global_step) +
        " is passed over, and others until it is done");
  }
  return false;
}

// Another rank has died, or has closed its engine after an exception, between two updates: the
// state after the last step is consistent.
void Supervisor::save_for_the_dead(const Error& error) {
  const bool ended = error.status() == RONDE_PEER_FAILED || error.status() == RONDE_CLOSED;
  if (!ended || !checkpoints_ || !options_.save_on_failure) return;
  if (optimizer_.rule().steps() != state_.optimizer_steps)
    return;                             // an update whose step did not complete
  if (state_.global_step == 0) return;  // nothing is lost, and it would replace old checkpoints
  for (std::size_t i = 0; i < statistics_.size(); ++i) {
    std::ranges::copy(kept_statistics_[i], statistics_[i].values.begin());
  }
  try {
    require_saved();
    say("another rank has ended: step " + std::to_string(state_.global_step) + " is saved in " +
        options_.logdir);
  } catch (const std::exception& trouble) {
    say(trouble.what());
  }
}

void Supervisor::end() {
  optimizer_.end_epoch();  // weights that are averaged each so many steps
  require_same_replicas();
  succeed_on_all(replica_, [this] {
    require_saved();
    if (!checkpoints_ || stopped() || !result_) return;
    try {
      checkpoints_->set_finished(state_.global_step, goal_with_flags(options_.goal, state_.flags),
                                 *result_);
    } catch (
        const DataError& error) {  // no loss: a restart finishes again, from its last checkpoint
      say(error.what());
    }
  });
  if (!stopped() || !is_chief()) return;
  say("stopped after step " + std::to_string(state_.global_step) +
      (checkpoints_ ? ", saved in " + options_.logdir : ": nothing is saved without a logdir"));
}

// Retries a failed save once.
void Supervisor::require_saved() {
  if (!checkpoints_) return;
  constexpr int kTries = 2;
  for (int i = 0; i <= kTries; ++i) {
    if (saved_step_ == state_.global_step && checkpoints_->flush()) return;
    if (i == kTries) break;
    if (save({}, checkpoints_->patience())) continue;
    checkpoints_->leave_alone();
    break;
  }
  throw TrainerError("step " + std::to_string(state_.global_step) +
                     ", the last one, is not saved in " + options_.logdir +
                     ": see the lines above about it, and start again");
}

}  // namespace ronde::trainer
