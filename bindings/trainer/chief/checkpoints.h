// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a training, which are written beside it, on a thread of their own.
#pragma once

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/trainer/chief/checkpoint_directory.h"
#include "bindings/trainer/chief/worker.h"

namespace ronde::trainer {

struct CheckpointOptions {
  std::string directory;
  std::size_t keep = 5;      // of the last ones; 0 is taken for 1
  std::string after_save{};  // a shell command for each; it finds its path in RONDE_CHECKPOINT
  Worker::Span timeout = std::chrono::minutes(5);  // of a wait for the disk, and of the command
};

// On the chief alone. A disk that hangs costs `timeout`, and what it was to write.
//
// Thread safety: belongs to one thread; `say` is called by this and by the thread that writes.
class Checkpoints {
 public:
  // As CheckpointDirectory, whose errors it throws.
  Checkpoints(CheckpointOptions options, Say say, FileSystem& files = disk(),
              const OwnerPatience& patience = {});
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;
  // Waits for what is being written.
  ~Checkpoints();

  std::optional<CheckpointState> restore(const RestoreOptions& options,
                                         const std::vector<StateTensor>& tensors);

  // Copies the tensors and returns; the thread writes the copy. False, and nothing was done, where
  // the one before is still being written after `patience`. With a metric that is smaller than all
  // before, this one is the best from then on, and stays until there is a better one.
  bool save(const CheckpointState& state, const std::vector<StateTensor>& tensors,
            std::optional<double> metric = {}, Worker::Span patience = {});
  // Waits until all is written; whether the last one that was handed over is on the disk, and its
  // command has ended well. Where not, a line has said why.
  bool flush();
  // Says that the disk hangs. Nothing waits for it from then on.
  void leave_alone();
  // How long a wait for what is being written may take.
  [[nodiscard]] Worker::Span patience() const noexcept { return patience_; }
  // Whether no checkpoint that is there or on its way has a smaller metric.
  [[nodiscard]] bool is_best(double metric);

  // What the training has come to (CheckpointDirectory). Throws DataError.
  [[nodiscard]] const TrainingRecord& record();
  void set_finished(std::optional<std::uint64_t> step, const std::string& goal = {},
                    const std::string& result = {});

 private:
  struct Shared;

  const CheckpointOptions options_;
  const Worker::Span patience_;  // with a disk, and with a command after it
  std::shared_ptr<Shared> shared_;
  std::optional<double> best_;  // that is there or on its way
  std::promise<void> ended_;
  Worker beats_;
  Worker writer_;
};

}  // namespace ronde::trainer
