// SPDX-License-Identifier: Apache-2.0
// Which callbacks there are, and their order.
#include "examples/support/chief_callbacks.h"

#include <algorithm>
#include <iostream>
#include <string>

namespace ronde::examples {

ChiefCallbacks::ChiefCallbacks(Engine& engine, trainer::Replica& replica,
                               const trainer::Learner& learner, trainer::Supervisor& supervisor,
                               const ChiefSettings& settings,
                               const trainer::ScheduleOptions& schedule)
    : supervisor_(supervisor), threads_(settings.threads), saving_(supervisor, learner) {
  if (replica.is_chief()) {
    say_ = [](const std::string& line) { std::cout << line << '\n' << std::flush; };
  }
  if (!supervisor.logdir().empty()) {
    log_.emplace(
        replica, learner,
        trainer::LogMetrics::Options{
            .directory = supervisor.logdir(),
            .every = settings.write_every(),
            .flags = settings.all_flags,
            .ranks = engine.describe(),
            .learning_rate = [schedule](auto step) { return learning_rate(schedule, step); },
            .say = say_});
  }
  if (settings.patience != 0) {
    stopping_.emplace(supervisor.numbers(), settings.patience, 0.0, say_);
  }
}

void ChiefCallbacks::add_to(std::vector<trainer::Callback*>& callbacks,
                            trainer::FitOptions& options) {
  if (log_) callbacks.push_back(&*log_);
  if (stopping_) callbacks.push_back(&*stopping_);
  callbacks.push_back(&saving_);
  trainer::go_on(options, supervisor_);
  double& threads = supervisor_.numbers()["computing/threads"];
  if (threads != 0.0 && threads != threads_ && say_) {
    say_("each rank computes with --threads " + std::to_string(threads_) +
         " from here on, and did with " + std::to_string(static_cast<int>(threads)) +
         ": results agree to rounding");
  }
  threads = threads_;
  if (options.most_steps == 0) return;
  if (options.first_global_step >= options.most_steps) options.epochs = options.first_epoch;
  options.most_steps -= std::min<std::size_t>(options.most_steps, options.first_global_step);
}

}  // namespace ronde::examples
