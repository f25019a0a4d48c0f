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

#include "bindings/trainer/fit/metrics.h"
#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/keep/checkpoints.h"
#include "bindings/trainer/keep/stop_signals.h"

namespace ronde::trainer {

// The chief's options count; those of other ranks are ignored.
struct SupervisorOptions {
  std::string logdir;             // checkpoints and logs; empty: nothing is saved
  double save_model_secs = 60.0;  // 0: not by time
  std::uint64_t save_steps = 0;   // 0: not by steps
  std::size_t keep = 5;           // checkpoints, besides the best
  double save_timeout = 300.0;    // seconds for the last save, and for after_save
  std::string after_save{};       // a shell command for each save (CheckpointOptions)
  // auto (the newest checkpoint, if there is any), must, never (begin anew), best, step-N, or the
  // path of a checkpoint elsewhere.
  std::string restore = "auto";
  bool accept_changes = false;  // flags that differ from the checkpoint: warn only
  bool save_on_failure = true;  // when another rank has died: the state after the last step
  double max_seconds = 0.0;     // stop after so many; 0: before the end of Slurm's job, if in one
  int stopped_exit_code = kExitStopped;
  // Must be equal when a training resumes, as must the optimiser, its schedule and the names and
  // shapes of the model's tensors. Dataset::settings() has the data's.
  Flags flags{};
  std::string goal{};  // the flags that decide when a training is finished
  PrintLine say{};     // prints the chief's lines; empty: on standard output
  FileSystem* files =
      &disk();  // of logdir; must outlive the supervisor, and a call that hangs in it
};

// Usage, on every rank:
//
//   Supervisor supervisor(here, optimizer, {.logdir = "train"});
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
// alone decides when to save, and reads and writes files; the others need no access to its disk. A
// checkpoint that cannot be written is a warning, and training continues; but it is an error if the
// last state is not on the disk at the end. A checkpoint that is due while the previous one is
// still being written is skipped, with a warning. Before each checkpoint, and after each epoch,
// the ranks' states are compared (Optimizer::require_same_replicas()).
//
// Thread safety: belongs to the thread of its model.
class Supervisor {
 public:
  // Supervises the model of the optimiser. The replica and the optimiser must outlive this object.
  Supervisor(Replica& here, Optimizer& optimizer, SupervisorOptions options);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor();

  [[nodiscard]] bool is_chief() const { return replica_.is_chief(); }
  [[nodiscard]] const std::string& logdir() const noexcept { return options_.logdir; }

  // Collective. The chief initialises or restores and broadcasts its parameters, moments,
  // statistics and counters, and the body runs until it returns, by itself or because of
  // should_stop(). Then the chief saves, and all return once that is on the disk. Throws
  // AgreedError where the chief cannot restore (its exit_code() says whether a restart may help),
  // or its last state is not on the disk. After an exception of the body nothing is saved, except
  // where another rank has died: then the chief saves the state after the last step. One session
  // per object.
  void managed_session(const std::function<void()>& body);

  // After the session: whether all ranks have stopped before the end, with their state saved.
  [[nodiscard]] bool stopped() const noexcept { return stopping_ && !result_; }
  // The exit code for the process: 0, or stopped_exit_code, or 1: stopped, and nothing is saved
  // since there is no logdir.
  [[nodiscard]] int exit_code() const noexcept {
    return !stopped() ? 0 : saves_ ? options_.stopped_exit_code : kExitFailure;
  }
  // The text given to finish(), in this session or in an earlier one with the same goal; in the
  // latter case the training is finished and the body does not run.
  [[nodiscard]] const std::optional<std::string>& result() const noexcept { return result_; }

  // For the body:

  // The progress since the very first start: steps taken, the epoch (from 0), and its completed
  // steps, with their sums over all ranks when the session began.
  [[nodiscard]] std::uint64_t global_step() const noexcept { return state_.global_step; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return state_.epoch; }
  [[nodiscard]] std::uint64_t step_in_epoch() const noexcept { return state_.step_in_epoch; }
  [[nodiscard]] const Metrics& sums_before() const noexcept { return sums_before_; }
  // Collective, after each step; `mine` are this rank's sums of the epoch in this session. Saves
  // when a checkpoint is due.
  void step_done(const Metrics& mine = {});
  // Before step_done(), where variables lie on servers: the position of all workers together.
  void set_place(std::uint64_t epoch, std::uint64_t step_in_epoch) noexcept;
  // Collective, after each epoch. The chief's metric counts: where it is the smallest so far a
  // checkpoint is saved, and kept until there is a smaller one.
  void epoch_done(std::optional<double> metric = {});
  // Collective: checks for a requested stop, between long operations that are no steps.
  void look();
  // Saves the last step, if it is not saved yet: before a long operation.
  void save();
  // Whether all ranks stop now, after the same step: one has received SIGTERM or called stop().
  [[nodiscard]] bool should_stop() const noexcept { return stopping_; }
  // Whether ranks may have other numbers of batches: see SaveCheckpoints.
  [[nodiscard]] bool averages_by_weights() const { return path().by_weights(); }
  // Asks all ranks to stop after the next step.
  void stop() noexcept { stop_asked_ = true; }

  // Numbers that are saved and restored, equal on all ranks: the state of callbacks.
  [[nodiscard]] std::map<std::string, double>& numbers() noexcept { return state_.numbers; }
  [[nodiscard]] const std::map<std::string, double>& numbers() const noexcept {
    return state_.numbers;
  }

  // At the end of a training: sets result(), also for a later start.
  void finish(std::string result) { result_ = std::move(result); }

 private:
  void begin();
  void restore_on_chief();
  void say_resumed(double parts) const;
  void share_state();
  void keep_statistics();
  void count_step();
  void require_same_replicas();
  [[nodiscard]] GradientPath& path() const { return optimizer_.path(); }
  [[nodiscard]] bool is_served() const { return path().is_served(); }
  void count_served();
  void tell_of_save();
  void stop_served();
  [[nodiscard]] bool stop_wanted();
  [[nodiscard]] bool is_time_to_save() const;
  bool save(std::optional<double> best, Worker::Span patience);
  void save_for_the_dead(const Error& error);
  void end();
  void require_saved();
  void say(const std::string& line) const;

  Replica& replica_;
  Optimizer& optimizer_;  // this replica's
  const SupervisorOptions options_;
  std::vector<StateTensor> tensors_;                 // all of a checkpoint
  std::vector<StateTensor> statistics_;              // of these
  std::vector<std::vector<float>> kept_statistics_;  // after the last completed step
  std::unique_ptr<Checkpoints> checkpoints_;         // on the chief, with a logdir
  std::optional<StopSignals> signals_;               // during the session
  CheckpointState state_;                            // after the last completed step
  Metrics sums_before_;
  std::optional<std::uint64_t> saved_step_;          // given to the writing thread
  std::optional<std::uint64_t> passed_over_beside_;  // for which a warning was printed
  std::optional<std::uint64_t> waited_for_;          // without success, for all of save_timeout
  std::optional<std::string> result_;
  std::optional<double> stop_at_;  // by steady_seconds()
  double last_save_ = 0.0;
  bool saves_ = false;  // the chief has a logdir
  bool save_asked_ = false;
  bool stop_asked_ = false;
  bool stopping_ = false;
};

}  // namespace ronde::trainer
