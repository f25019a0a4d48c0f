// SPDX-License-Identifier: Apache-2.0
// The callbacks of fit() that write checkpoints and logs, on the chief.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "bindings/trainer/fit/callbacks.h"
#include "bindings/trainer/fit/fit.h"
#include "bindings/trainer/fit/learner.h"
#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/keep/logs.h"
#include "bindings/trainer/keep/supervisor.h"
#include "bindings/trainer/keep/worker.h"

namespace ronde::trainer {

// Where SaveCheckpoints keeps the loss of the last epoch among the supervisor's numbers.
inline constexpr const char* kLastEpochLoss = "last_epoch/loss";

// The training loss where the session began: of its epoch so far, or of the last whole one.
[[nodiscard]] double loss_before(const Supervisor& supervisor);

// The position from which fit() resumes: that of the supervisor's session.
void go_on(FitOptions& options, const Supervisor& supervisor);

// Saves checkpoints by the supervisor's options, keeps the best one too, and ends fit() after the
// step, or the batch of a validation, in which the ranks agree to stop. It must be the last
// callback, since the numbers of the others go into the checkpoint. On all ranks.
class SaveCheckpoints final : public Callback {
 public:
  // Both must outlive this object.
  SaveCheckpoints(Supervisor& supervisor, const Learner& learner)
      : supervisor_(supervisor), learner_(learner) {}

  // Throws AgreedError where the data sets are processes' own (Dataset::own()): a chief that has no
  // more batches would save, and be stopped, at another step than the others.
  void on_start(TrainingState& state) override;
  void on_step(TrainingState& state) override;
  void on_validation_batch(TrainingState& state) override;
  void on_epoch(TrainingState& state) override;
  // Saves, since a validation may take long.
  void on_end(TrainingState& state) override;

 private:
  Supervisor& supervisor_;
  const Learner& learner_;
};

// Writes event files for TensorBoard and metrics.jsonl, in a directory of the chief's. Every
// `every` steps: loss and accuracy of the step over all ranks, learning rate, images per second,
// the chief's share of time in waits, and the straggler (the rank that waited least), which costs a
// small allreduce in each of these steps. At the end of each epoch: its loss and accuracy, and
// those of the validation. On all ranks. If a file cannot be written, a line reports it, another
// one reports its recovery, and training continues.
class LogMetrics final : public Callback {
 public:
  struct Options {
    std::string directory;            // of the chief
    std::uint64_t every = 50;         // steps; the chief's counts
    Flags flags{};                    // shown as text
    std::string ranks{};              // likewise: the table of ranks
    std::string loss = "train/loss";  // the name of a step's loss
    std::function<double(std::uint64_t step)> learning_rate{};
    PrintLine say{};
    Worker::Span patience = std::chrono::seconds(10);  // the timeout for a disk that hangs
  };
  // Both must outlive this object.
  LogMetrics(Replica& replica, const Learner& learner, Options options)
      : replica_(replica), learner_(learner), options_(std::move(options)) {}

  // Collective. Throws AgreedError where the chief cannot write at all; where training resumes from
  // a checkpoint it prints a warning instead.
  void on_start(TrainingState& state) override;
  void on_step(TrainingState& state) override;
  void on_epoch(TrainingState& state) override;

 private:
  using Values = std::map<std::string, double>;
  void open(std::uint64_t step);
  void write(std::uint64_t step, const Values& values);
  [[nodiscard]] double waited() const {
    return learner_.times().waited_seconds + replica_.waited_seconds();
  }

  Replica& replica_;
  const Learner& learner_;
  Options options_;
  std::shared_ptr<TrainingLogs> logs_;  // on the chief
  Worker writer_;
  double began_ = 0.0;       // of this interval
  double waited_ = 0.0;      // when it began
  std::size_t samples_ = 0;  // in this interval, by all ranks
  std::size_t last_samples_ = 0;
  bool failing_ = false;
};

}  // namespace ronde::trainer
