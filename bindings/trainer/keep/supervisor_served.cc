// SPDX-License-Identifier: Apache-2.0
// A supervisor where variables live on servers, which count the steps of all workers.
#include "bindings/trainer/keep/checkpoint_names.h"
#include "bindings/trainer/keep/supervisor.h"

namespace ronde::trainer {

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

}  // namespace ronde::trainer
