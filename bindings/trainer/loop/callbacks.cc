// SPDX-License-Identifier: Apache-2.0
// What callbacks print.
#include "bindings/trainer/loop/callbacks.h"

#include <cinttypes>
#include <cstdio>
#include <ostream>

namespace ronde::trainer {

void LogSteps::on_step(TrainingState& state) {
  if (every_ == 0 || state.global_step % every_ != 0) return;
  const Metrics all = over_ranks(replica_, "fit/step", learner_.last_step());
  if (lines_ == nullptr) return;
  char text[120];
  std::snprintf(text, sizeof text, "step %" PRIu64 ": loss %.9g, accuracy %.4f\n",
                state.global_step, all.loss(), all.accuracy());
  *lines_ << text << std::flush;
}

}  // namespace ronde::trainer
