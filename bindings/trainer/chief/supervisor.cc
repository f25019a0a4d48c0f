// SPDX-License-Identifier: Apache-2.0
// What the chief does, and what the ranks agree on in every step.
#include "bindings/trainer/chief/supervisor.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bindings/trainer/chief/finished.h"
#include "bindings/trainer/loop/agreement.h"
#include "bindings/trainer/loop/progress.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr const char* kBestMetric = "supervisor/best_metric";

// Parameters, statistics and moments, in an order that is the same on every rank.
std::vector<StateTensor> tensors_of(const Model& model, Optimizer& optimizer) {
  std::vector<StateTensor> tensors;
  for (Parameter* const one : model.parameters()) {
    tensors.push_back({one->name(), one->shape(), one->value()});
  }
  for (const StateTensor& one : model.statistics()) tensors.push_back(one);
  for (const StateTensor& one : optimizer.state()) tensors.push_back(one);
  return tensors;
}

// A job that ronderun starts again goes on with what it has begun anew.
Restore restore_of_this_start(Restore restore) {
  const char* const attempt = std::getenv("RONDE_RESTART_ATTEMPT");
  const bool again = attempt != nullptr && std::string(attempt) != "0";
  return again && restore == Restore::kNever ? Restore::kAuto : restore;
}

// With other flags it would be another training, whatever its end.
std::string goal_with_flags(const SupervisorOptions& options) {
  std::string goal = options.goal;
  for (const auto& [name, value] : options.flags) goal += ' ' + name + ' ' + value;
  return goal;
}

void require_other_names(const std::vector<StateTensor>& tensors) {
  std::set<std::string> names;
  for (const StateTensor& one : tensors) {
    if (names.insert(one.name).second) continue;
    throw TrainerError("two tensors are called " + one.name +
                       ": a checkpoint needs a name for each");
  }
}

}  // namespace

Supervisor::Supervisor(Replica& replica, const Model& model, Optimizer& optimizer,
                       SupervisorOptions options)
    : replica_(replica),
      optimizer_(optimizer),
      options_(std::move(options)),
      tensors_(tensors_of(model, optimizer)) {
  require_other_names(tensors_);
}

Supervisor::Supervisor(Replica& replica, const Model& model, DistributedOptimizer& optimizer,
                       SupervisorOptions options)
    : Supervisor(replica, model, optimizer.optimizer(), std::move(options)) {
  distributed_ = &optimizer;
}

Supervisor::~Supervisor() = default;

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
  if (!finished_) {
    body();
    end();
  }
  signals_.reset();
}

void Supervisor::begin() {
  std::string failure;
  if (is_chief()) {
    try {
      restore_on_chief();
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  require_success(replica_, failure);
  share_state();
  sums_before_ = state_.epoch_sums;
  latest_ = {};
  last_save_ = steady_seconds();
}

void Supervisor::restore_on_chief() {
  std::optional<CheckpointState> found;
  if (!options_.logdir.empty()) {
    checkpoints_ = std::make_unique<Checkpoints>(
        CheckpointOptions{.directory = options_.logdir, .keep = options_.keep},
        [this](const std::string& line) { say(line); });
    found =
        checkpoints_->restore(restore_of_this_start(options_.restore), options_.flags, tensors_);
    const auto finished = read_finished(options_.logdir);
    if (found && finished && finished->goal == goal_with_flags(options_) &&
        finished->global_step == found->global_step) {
      finished_ = finished->result;
    } else {
      forget_finished(options_.logdir);  // it is of another training, or of a part of this one
    }
  }
  if (!found) {
    if (options_.init) options_.init();
    return;
  }
  state_ = std::move(*found);
  restored_ = saved_step_ = state_.global_step;
  if (finished_) return;
  say("resumed at step " + std::to_string(state_.global_step) + " (step " +
      std::to_string(state_.step_in_epoch) + " of epoch " + std::to_string(state_.epoch + 1) +
      ") from " + checkpoint_path(options_.logdir, state_.global_step));
}

// The others take the chief's state, which is small, as text, and its tensors.
void Supervisor::share_state() {
  std::string mine;
  if (is_chief()) {
    state_.optimizer_steps = restored_ ? state_.optimizer_steps : optimizer_.steps();
    mine = nlohmann::json{{"restored", restored_.has_value()},
                          {"finished", finished_.has_value()},
                          {"result", finished_.value_or("")},
                          {"state", to_state_json(state_, "")}}
               .dump();
  }
  const auto texts = gather_texts(replica_, "supervisor/state", mine);
  for (const StateTensor& one : tensors_) {
    replica_.broadcast("supervisor/" + one.name, one.values, 0);
  }
  if (!is_chief()) {
    const auto shared = nlohmann::json::parse(texts.front());
    state_ = from_state_json(shared.at("state"), "the chief's state").first;
    if (shared.at("restored")) restored_ = saved_step_ = state_.global_step;
    if (shared.at("finished")) finished_ = shared.at("result");
  }
  optimizer_.set_steps(state_.optimizer_steps);
  if (distributed_ != nullptr) distributed_->set_global_step(state_.global_step);
}

void Supervisor::step_done(const Metrics& mine) {
  ++state_.global_step;
  ++state_.step_in_epoch;
  latest_ = mine;
  bool save_now = signals_ && signals_->take_save_asked();
  if (checkpoints_) {
    const bool by_steps = options_.save_steps != 0 && state_.global_step % options_.save_steps == 0;
    const bool by_time =
        options_.save_model_secs > 0.0 && steady_seconds() - last_save_ >= options_.save_model_secs;
    save_now = save_now || by_steps || by_time;
  }
  stop_asked_ = stop_asked_ || (signals_ && signals_->stop_asked());
  std::array<double, 2> wanted{stop_asked_ ? 1.0 : 0.0, save_now ? 1.0 : 0.0};
  replica_.allreduce("supervisor/wanted", wanted, Reduction::kMax);
  stopping_ = wanted[0] != 0.0;
  // What others were asked meanwhile is done with this save.
  if (wanted[1] != 0.0 && signals_) static_cast<void>(signals_->take_save_asked());
  // A stop is saved at the end of the session.
  if (wanted[1] != 0.0 && !stopping_) save(mine);
}

void Supervisor::epoch_done(std::optional<double> metric) {
  ++state_.epoch;
  state_.step_in_epoch = 0;
  sums_before_ = latest_ = {};
  if (!metric || !std::isfinite(*metric)) return;
  const auto best = state_.numbers.find(kBestMetric);
  if (best != state_.numbers.end() && *metric >= best->second) return;
  state_.numbers[kBestMetric] = *metric;
  save({}, metric);
}

// Collective, since the sums are those of all ranks.
void Supervisor::save(const Metrics& mine, std::optional<double> best) {
  if (options_.logdir.empty()) return;
  saved_step_ = state_.global_step;
  Metrics sums = over_ranks(replica_, "supervisor/sums", mine);
  sums.add(sums_before_);
  last_save_ = steady_seconds();
  if (!checkpoints_) return;
  CheckpointState state = state_;
  state.epoch_sums = sums;
  state.optimizer_steps = optimizer_.steps();
  state.flags = options_.flags;
  if (best) {
    checkpoints_->save_if_best(state, tensors_, *best);
  } else {
    checkpoints_->save(state, tensors_);
  }
}

void Supervisor::end() {
  // A save that failed is tried once more.
  const bool failed = checkpoints_ && !checkpoints_->flush();
  std::array<double, 1> unsaved{saved_step_ != state_.global_step || failed ? 1.0 : 0.0};
  replica_.allreduce("supervisor/unsaved", unsaved, Reduction::kMax);
  if (unsaved[0] != 0.0) save(latest_);
  std::string failure;
  if (checkpoints_ && !checkpoints_->flush() && stopping_) {
    failure = "asked to stop after step " + std::to_string(state_.global_step) +
              ", which could not be saved";
  }
  require_success(replica_, failure);
  if (!stopping_ || !is_chief()) return;
  say("stopped after step " + std::to_string(state_.global_step) +
      (options_.logdir.empty() ? ": nothing is saved without a logdir"
                               : ", saved in " + options_.logdir));
}

// It is no loss if this is not written: the training ends once more, from its last checkpoint.
void Supervisor::finish(const std::string& result) {
  if (!checkpoints_) return;
  try {
    write_finished(options_.logdir, {state_.global_step, goal_with_flags(options_), result});
  } catch (const DataError& error) {
    say(error.what());
  }
}

}  // namespace ronde::trainer
