// SPDX-License-Identifier: Apache-2.0
// What the chief keeps of the servers' variables on a disk, in the format of a Supervisor.
#include <algorithm>
#include <chrono>
#include <utility>

#include "bindings/trainer/server/parameter_server.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

void ParameterServer::restore() {
  checkpoints_ = std::make_unique<Checkpoints>(
      CheckpointOptions{.directory = options_.logdir, .keep = options_.keep},
      [this](const std::string& line) { say(line); });
  Flags flags = options_.flags;
  flags.emplace_back("optimizer", mirror_->settings());
  const auto found = checkpoints_->restore(
      {.how = options_.restore, .flags = flags, .accept_changes = options_.accept_changes},
      tensors_);
  checkpoints_->set_finished({});
  if (!found) return;
  restored_ = true;
  first_step_ = saved_step_ = global_step_ = found->global_step;
  mirror_->set_steps(found->optimizer_steps);
  for (Parameter* const one : parameters_) one->changed();
  say("resumed at step " + std::to_string(first_step_) + " from " + options_.logdir);
}

// In the order of Variables::state().
std::vector<ParameterServer::Stretch> ParameterServer::state_of(std::uint32_t group) {
  const std::size_t variables = parameters_.size();
  const std::size_t all = variables + tables_.size();  // tensors of each kind: values, moments
  const std::size_t kinds = tensors_.size() / std::max<std::size_t>(1, all);
  std::vector<Stretch> stretches;
  const auto add_dense = [&](std::size_t kind) {
    for (const Piece& piece : pieces_) {
      if (piece.server != group) continue;
      const StateTensor& tensor = tensors_[kind * all + piece.variable];
      stretches.push_back({tensor.values.data() + piece.first, piece.size, 0, 1});
    }
  };
  const auto add_table = [&](std::size_t kind, std::size_t table) {
    const StateTensor& tensor = tensors_[kind * all + variables + table];
    const std::size_t width = tensor.shape[1];
    stretches.push_back({tensor.values.data() + group * width, width, servers_ * width,
                         rows_on(tensor.shape[0], group, servers_)});
  };
  add_dense(0);
  for (std::size_t table = 0; table < tables_.size(); ++table) add_table(0, table);
  for (std::size_t kind = 1; kind < kinds; ++kind) add_dense(kind);
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    for (std::size_t kind = 1; kind < kinds; ++kind) add_table(kind, table);
  }
  return stretches;
}

void ParameterServer::save_if_due() {
  if (!chief_ || !checkpoints_ || options_.save_steps == 0) return;
  if (global_step_ >= saved_step_ + options_.save_steps) (void)save();
}

bool ParameterServer::save() {
  if (!checkpoints_) return false;
  std::vector<std::vector<float>> kept;  // what is pulled stays for the step that is being computed
  kept.reserve(parameters_.size());
  for (const Parameter* const one : parameters_) {
    kept.emplace_back(one->value().begin(), one->value().end());
  }
  std::uint64_t version = 0;
  for (std::uint32_t group = 0; group < servers_; ++group) {
    Message message;
    message.kind = Kind::kState;
    message.group = group;
    const Message answer = client_.ask(std::move(message));
    if (group == 0) version = answer.version;
    FloatReader from(answer.floats);
    for (const Stretch& one : state_of(group)) {
      for (std::size_t i = 0; i < one.count && from.left() >= one.size; ++i) {
        from.read({one.first + i * one.step, one.size});
      }
    }
  }
  std::string wrong;
  for (const StateTensor& one : tensors_) {
    if (wrong.empty() && !all_finite(one.values)) wrong = one.name;
  }
  if (!wrong.empty()) {
    throw TrainerError("not every number of '" + wrong + "' on the servers is finite at step " +
                       std::to_string(version) + ": it is not saved, so that the checkpoints of " +
                       "before stay; go on from the newest with a smaller learning rate");
  }
  CheckpointState state;
  state.global_step = state.optimizer_steps = version;
  const std::uint64_t batches =
      version / (options_.mode.mode == Mode::kSync ? 1 : tasks_.workers.size());
  const std::uint64_t each = options_.batches_per_epoch;
  state.epoch = each == 0 ? 0 : batches / each;
  state.step_in_epoch = each == 0 ? batches : batches % each;
  state.flags = options_.flags;
  state.flags.emplace_back("optimizer", mirror_->settings());
  for (const StateTensor& one : mirror_->state()) state.moments.push_back(one.name);
  const bool saved =
      checkpoints_->save(state, tensors_, {}, std::chrono::seconds(60)) && checkpoints_->flush();
  if (saved) saved_step_ = version;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    std::ranges::copy(kept[i], parameters_[i]->value().begin());
  }
  return saved;
}

}  // namespace ronde::trainer::server
