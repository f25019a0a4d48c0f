// SPDX-License-Identifier: Apache-2.0
// Writes the checkpoints of a training asynchronously, on a thread of their own.
#pragma once

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/trainer/keep/checkpoint_directory.h"
#include "bindings/trainer/keep/worker.h"

namespace ronde::trainer {

struct CheckpointOptions {
  std::string directory;
  std::size_t keep = 5;      // of the last ones; 0 is taken for 1
  std::string after_save{};  // a shell command for each; it finds its path in RONDE_CHECKPOINT
  Worker::Span timeout = std::chrono::minutes(5);  // for a wait for the disk, and for the command
};

// On the chief alone. A disk that hangs costs `timeout`, and the checkpoint.
//
// Thread safety: belongs to one thread; `say` is called by this and by the thread that writes.
class Checkpoints {
 public:
  // As CheckpointDirectory, whose errors it throws.
  Checkpoints(CheckpointOptions options, PrintLine say, FileSystem& files = disk(),
              const OwnerPatience& patience = {});
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;
  // Waits for the write in progress.
  ~Checkpoints();

  std::optional<CheckpointState> restore(const RestoreOptions& options,
                                         const std::vector<StateTensor>& tensors);

  // Copies the tensors and returns; the thread writes the copy. Returns false, and does nothing,
  // where the previous one is still being written after `patience`. With a metric that is smaller
  // than all before, this checkpoint is the best, and is kept until there is a better one.
  bool save(const CheckpointState& state, const std::vector<StateTensor>& tensors,
            std::optional<double> metric = {}, Worker::Span patience = {});
  // Waits until all is written. Returns whether the last one is on the disk and its command has
  // succeeded; if not, the reason was printed.
  bool flush();
  // Reports that the disk hangs. From then on nothing waits for it.
  void leave_alone();
  // The longest wait for the write in progress.
  [[nodiscard]] Worker::Span patience() const noexcept { return patience_; }
  // Whether no checkpoint that exists or is being written has a smaller metric.
  [[nodiscard]] bool is_best(double metric);

  // The result of the training (CheckpointDirectory). Throws DataError.
  [[nodiscard]] const TrainingRecord& record();
  void set_finished(std::optional<std::uint64_t> step, const std::string& goal = {},
                    const std::string& result = {});

 private:
  struct Shared;

  const CheckpointOptions options_;
  const Worker::Span patience_;  // the timeout for the disk, and for the command after it
  std::shared_ptr<Shared> shared_;
  std::optional<double> best_;  // that exists or is being written
  std::promise<void> ended_;
  Worker beats_;
  Worker writer_;
};

}  // namespace ronde::trainer
