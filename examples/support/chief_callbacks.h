// SPDX-License-Identifier: Apache-2.0
// The callbacks of fit() that the chief's flags ask for.
#pragma once

#include <optional>
#include <ronde/ronde.hpp>
#include <vector>

#include "bindings/trainer/chief/callbacks.h"
#include "bindings/trainer/chief/supervisor.h"
#include "bindings/trainer/loop/fit.h"
#include "bindings/trainer/optim/schedule.h"
#include "examples/support/chief_flags.h"

namespace ronde::examples {

// On every rank, for the body of a supervisor's session. What it was made from must outlive it.
class ChiefCallbacks {
 public:
  ChiefCallbacks(Engine& engine, trainer::Replica& replica, const trainer::Learner& learner,
                 trainer::Supervisor& supervisor, const ChiefSettings& settings,
                 const trainer::ScheduleOptions& schedule);

  // Puts them behind these, and says where fit() goes on. options.most_steps counts from the very
  // first start of the training.
  void add_to(std::vector<trainer::Callback*>& callbacks, trainer::FitOptions& options);

 private:
  trainer::Supervisor& supervisor_;
  trainer::Say say_;  // empty but on the chief
  int threads_;
  std::optional<trainer::LogMetrics> log_;
  std::optional<trainer::EarlyStopping> stopping_;
  trainer::SaveCheckpoints saving_;
};

}  // namespace ronde::examples
