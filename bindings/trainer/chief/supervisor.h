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

// What counts is what the chief's say; those of the other ranks are not asked.
struct SupervisorOptions {
  std::string logdir;             // checkpoints and logs; empty: nothing is saved
  std::function<void()> init{};   // where nothing is restored; empty: nothing to do
  double save_model_secs = 60.0;  // 0: not by time
  std::uint64_t save_steps = 0;   // 0: not by steps
  std::size_t keep = 5;           // checkpoints, besides the best
  double save_timeout = 300.0;    // seconds that the disk has for the last save, and after_save
  std::string after_save{};       // a shell command for each save (CheckpointOptions)
  // auto (the newest checkpoint, if there is any), must, never (begin anew), best, step-N, or the
  // path of a checkpoint elsewhere.
  std::string restore = "auto";
  bool accept_changes = false;  // what differs from the checkpoint is said, not refused
  bool save_on_failure = true;  // when another rank has died: the state after the last step
  double max_seconds = 0.0;     // stop after so many; 0: before the end of Slurm's job, if in one
  int stopped_exit_code = kExitStopped;
  // What a training that goes on must have in common with the one before, besides the optimiser,
  // its schedule and the model's tensors, which are compared anyway. Dataset::settings() has the
  // data's.
  Flags flags{};
  std::string goal{};  // with which flags a finished training is the one that is asked for
  Say say{};           // prints the chief's lines; empty: on standard output
  FileSystem* files =
      &disk();  // where logdir is; must outlive the supervisor, and what hangs in it
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
//   return supervisor.exit_code();
//
// The ranks agree in every step on whether to stop, by an allreduce of six numbers. The chief
// alone decides when to save, and reads and writes files; the others need not see its disk. A
// checkpoint that cannot be written is a line, and training goes on; but there is no end without
// an error before the last state is on the disk. A checkpoint that is due while the one before is
// still being written is passed over, with a line. Before each checkpoint, and after each epoch,
// the ranks' states are compared (DistributedOptimizer::require_same_replicas()).
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
  // restore what it must (its exit_code() says whether another start may), or its last state is
  // not on the disk. After an exception of the body nothing is saved, but where another rank has
  // died: then the chief saves what the last step has come to. One session to an object.
  void managed_session(const std::function<void()>& body);

  // After the session: all ranks have stopped before the end, and their state is saved.
  [[nodiscard]] bool stopped() const noexcept { return stopping_ && !result_; }
  // With what the process should end: 0, or stopped_exit_code, or 1: stopped, and nothing is saved
  // for want of a logdir.
  [[nodiscard]] int exit_code() const noexcept {
    return !stopped() ? 0 : saves_ ? options_.stopped_exit_code : kExitFailure;
  }
  // What finish() was given, in this session or in an earlier one with the same goal, to which
  // nothing is left to do: then the body does not run.
  [[nodiscard]] const std::optional<std::string>& result() const noexcept { return result_; }

  // What follows is for the body.

  // Where training stands, since the very first start: steps taken, the epoch (from 0), and the
  // steps of it that are done, with their sums over all ranks when the session began.
  [[nodiscard]] std::uint64_t global_step() const noexcept { return state_.global_step; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return state_.epoch; }
  [[nodiscard]] std::uint64_t step_in_epoch() const noexcept { return state_.step_in_epoch; }
  [[nodiscard]] const Metrics& sums_before() const noexcept { return sums_before_; }
  // Collective, after each step; `mine` are this rank's sums of the epoch in this session. Saves
  // where it is time to.
  void step_done(const Metrics& mine = {});
  // Collective, after each epoch. The chief's metric counts: where it is the smallest so far a
  // checkpoint is saved, and kept until there is a smaller one.
  void epoch_done(std::optional<double> metric = {});
  // Collective: looks for a wish to stop, between things that take long and are no steps.
  void look();
  // Saves the last step, where that is not done: before something that takes long.
  void save();
  // Whether all ranks stop now, after the same step: one was sent SIGTERM, or has called stop().
  [[nodiscard]] bool should_stop() const noexcept { return stopping_; }
  // Asks all ranks to stop after the next step.
  void stop() noexcept { stop_asked_ = true; }

  // Numbers that are saved and restored, the same on all ranks: what callbacks must not forget.
  [[nodiscard]] std::map<std::string, double>& numbers() noexcept { return state_.numbers; }
  [[nodiscard]] const std::map<std::string, double>& numbers() const noexcept {
    return state_.numbers;
  }

  // At the end of a training: what result() will be now, and when it is started again.
  void finish(std::string result) { result_ = std::move(result); }

 private:
  void begin();
  void restore_on_chief();
  void say_resumed(double parts) const;
  void share_state();
  void keep_statistics();
  void count_step();
  void require_same_replicas();
  [[nodiscard]] bool stop_wanted();
  [[nodiscard]] bool is_time_to_save() const;
  bool save(std::optional<double> best, Worker::Span patience);
  void save_for_the_dead(const Error& error);
  void end();
  void require_saved();
  void say(const std::string& line) const;

  Replica& replica_;
  Optimizer& optimizer_;
  DistributedOptimizer* distributed_ = nullptr;
  const SupervisorOptions options_;
  std::vector<StateTensor> tensors_;                 // all that a checkpoint holds
  std::vector<StateTensor> statistics_;              // of these
  std::vector<std::vector<float>> kept_statistics_;  // after the last step that was done
  std::unique_ptr<Checkpoints> checkpoints_;         // on the chief, with a logdir
  std::optional<StopSignals> signals_;               // during the session
  CheckpointState state_;                            // after the last step that was done
  Metrics sums_before_;
  std::optional<std::uint64_t> saved_step_;          // handed over to be written
  std::optional<std::uint64_t> passed_over_beside_;  // of which a line was said
  std::optional<std::uint64_t> waited_for_;          // in vain, for all of save_timeout
  std::optional<std::string> result_;
  std::optional<double> stop_at_;  // by steady_seconds()
  double last_save_ = 0.0;
  bool saves_ = false;  // the chief has a logdir
  bool save_asked_ = false;
  bool stop_asked_ = false;
  bool stopping_ = false;
};

}  // namespace ronde::trainer
