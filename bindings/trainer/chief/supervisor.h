// SPDX-License-Identifier: Apache-2.0
// The chief's duties around a training loop: initialise or restore, save, stop in good order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/trainer/chief/checkpoints.h"
#include "bindings/trainer/chief/stop_signals.h"
#include "bindings/trainer/loop/metrics.h"
#include "bindings/trainer/loop/replica.h"
#include "bindings/trainer/nn/model.h"
#include "bindings/trainer/optim/distributed_optimizer.h"
#include "bindings/trainer/optim/optimizer.h"

namespace ronde::trainer {

// The same on all ranks, but for `init` and `say`.
struct SupervisorOptions {
  std::string logdir;             // checkpoints and logs; empty: nothing is saved
  std::function<void()> init{};   // on the chief, where nothing is restored; empty: nothing to do
  double save_model_secs = 60.0;  // 0: not by time
  std::uint64_t save_steps = 0;   // 0: not by steps
  std::size_t keep = 5;           // checkpoints, besides the best
  Restore restore = Restore::kAuto;
  Flags flags{};       // what a training that goes on must have in common with the one before
  std::string goal{};  // with which flags a finished training is the one that is asked for
  Say say{};           // prints the chief's lines; empty: on standard output
};

// Usage, on every rank:
//
//   Supervisor supervisor(replica, model, optimizer, {.logdir = "train"});
//   supervisor.managed_session([&] {
//     for (auto epoch = supervisor.epoch(); epoch < epochs; ++epoch) {
//       Epoch batches = data.epoch(epoch, supervisor.step_in_epoch());
//       while (const StepBatch* batch = batches.next()) {
//         ...
//         supervisor.step_done();
//         if (supervisor.should_stop()) return;
//       }
//       supervisor.epoch_done();
//     }
//   });
//
// The ranks agree in every step on whether to save and whether to stop, by an allreduce of two
// numbers. The chief alone reads and writes files; the others need not see its disk. A checkpoint
// that cannot be written is a line, and training goes on.
//
// Thread safety: belongs to the thread of its model.
class Supervisor {
 public:
  // All but `options` must outlive this object.
  Supervisor(Replica& replica, const Model& model, Optimizer& optimizer, SupervisorOptions options);
  // Restores the steps that its schedule counts by as well.
  Supervisor(Replica& replica, const Model& model, DistributedOptimizer& optimizer,
             SupervisorOptions options);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor();

  [[nodiscard]] bool is_chief() const { return replica_.is_chief(); }
  [[nodiscard]] const std::string& logdir() const noexcept { return options_.logdir; }

  // Collective. The chief initialises or restores, all get its parameters, moments, statistics and
  // counters, and the body runs, which ends by itself or because of should_stop(). Then the chief
  // saves, and all return once that is on the disk. Throws AgreedError where the chief cannot
  // restore what it must or a stop cannot be saved. After an exception of the body nothing is
  // saved. One session to an object.
  void managed_session(const std::function<void()>& body);

  // What follows is for the body.

  // Where training stands, since the very first start: steps taken, the epoch (from 0), and the
  // steps of it that are done, with their sums over all ranks when the session began.
  [[nodiscard]] std::uint64_t global_step() const noexcept { return state_.global_step; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return state_.epoch; }
  [[nodiscard]] std::uint64_t step_in_epoch() const noexcept { return state_.step_in_epoch; }
  [[nodiscard]] const Metrics& sums_before() const noexcept { return sums_before_; }
  // Whether a checkpoint was restored, and of which step.
  [[nodiscard]] std::optional<std::uint64_t> restored_step() const noexcept { return restored_; }
  // The result of a training that has ended (see finish()), if it had this goal: nothing is left to
  // do.
  [[nodiscard]] const std::optional<std::string>& finished_result() const noexcept {
    return finished_;
  }

  // Collective, after each step; `mine` are this rank's sums of the epoch in this session. Saves
  // where it is time to.
  void step_done(const Metrics& mine = {});
  // Collective, after each epoch; with a metric, which must be the same on all ranks, a checkpoint
  // is saved where it is the smallest so far, and kept until there is a smaller one.
  void epoch_done(std::optional<double> metric = {});
  // Whether all ranks stop now, after the same step: one was sent SIGTERM, or has called stop().
  [[nodiscard]] bool should_stop() const noexcept { return stopping_; }
  // Asks all ranks to stop after the next step.
  void stop() noexcept { stop_asked_ = true; }

  // Numbers that are saved and restored, the same on all ranks: what callbacks must not forget.
  [[nodiscard]] std::map<std::string, double>& numbers() noexcept { return state_.numbers; }
  [[nodiscard]] const std::map<std::string, double>& numbers() const noexcept {
    return state_.numbers;
  }

  // On the chief, at the end of a training: what finished_result() will be when it is started
  // again. On the other ranks it does nothing.
  void finish(const std::string& result);

 private:
  void begin();
  void restore_on_chief();
  void share_state();
  void save(const Metrics& mine, std::optional<double> best = {});
  void end();
  void say(const std::string& line) const;

  Replica& replica_;
  Optimizer& optimizer_;
  DistributedOptimizer* distributed_ = nullptr;
  const SupervisorOptions options_;
  std::vector<StateTensor> tensors_;          // all that a checkpoint holds
  std::unique_ptr<Checkpoints> checkpoints_;  // on the chief, with a logdir
  std::optional<StopSignals> signals_;        // during the session
  CheckpointState state_;
  Metrics sums_before_;
  Metrics latest_;  // this rank's, of the last step_done()
  std::optional<std::uint64_t> restored_;
  std::optional<std::string> finished_;
  std::optional<std::uint64_t> saved_step_;
  double last_save_ = 0.0;
  bool stop_asked_ = false;
  bool stopping_ = false;
};

}  // namespace ronde::trainer
