// SPDX-License-Identifier: Apache-2.0
// The directory of a training's checkpoints. Everything that decides which of them are valid, added
// and removed is in this file, and a model checker tests it: two starts at a time in all orders, a
// kill after each system call, and each call failing.
//
// Its contents:
// - step-N/           a complete checkpoint
// - step-N.T.tmp/     one that the owner of term T is writing or removing
// - step-N.T.old.tmp/ one that is being replaced by another of the same step
// - step-N.damaged/   one that failed its checks at a start, which went on from another
// - training.json     the id of the training whose checkpoints are valid, and its result
// - owner-T, lock     which process owns the directory (owner.h)
//
// Rules:
// 1. A checkpoint is written as step-N.T.tmp; both files, the folder, the name and the directory
//    are synced, and only then is it acknowledged.
// 2. Where step-N is there already it becomes step-N.T.old.tmp until the new one has its name. A
//    start puts it back if neither has.
// 3. A checkpoint is valid if its state.json has the training id of training.json. A start that
//    begins anew, or resumes from another than the newest, writes a new id there, by one rename:
//    from then on all older ones are invalid. They are removed once the first one of the new
//    training is acknowledged, and never before.
// 4. A restart of the same job, known by its name in training.json, resumes the job's training.
// 5. A start resumes from the newest valid checkpoint that is complete. It skips only those that
//    are provably damaged; one that cannot be read, or none that is complete, is an error. If there
//    are checkpoints and none is valid, the user must choose (--restore).
// 6. The last `keep` valid checkpoints are kept, the newest acknowledged one and the best. A
// damaged
//    one that was renamed is kept until it is older than all of these. If the disk is full, the
//    damaged ones are removed first, then the oldest of the others, and the write is retried.
// 7. A process whose owner-T is gone writes no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bindings/trainer/fit/callbacks.h"
#include "bindings/trainer/keep/checkpoint.h"
#include "bindings/trainer/keep/owner.h"

namespace ronde::trainer {

struct RestoreOptions {
  // auto: the newest, if there is any; must: the newest; never: begin anew; best; step-N; or the
  // path of a checkpoint elsewhere.
  std::string how = "auto";
  std::string job{};            // empty: a restart looks like a first start
  Flags flags{};                // that must be equal
  bool accept_changes = false;  // where they are not, warn instead of refusing
};

// The state to write, copied when the save was requested.
struct Snapshot {
  CheckpointState state;
  std::string tensors;           // a file's bytes
  std::optional<double> metric;  // the smallest is the best
};

// Thread safety: belongs to one thread at a time, except beat().
class CheckpointDirectory {
 public:
  // Makes the directory if it is missing, takes ownership, and cleans up after processes that were
  // killed. Throws DataError if another training owns it, or if it cannot be written.
  CheckpointDirectory(FileSystem& files, const std::string& directory, std::size_t keep,
                      PrintLine say, const OwnerPatience& patience = {});

  // Reads a checkpoint into `tensors`; returns nothing if the training begins anew. Throws
  // TrainerError for a checkpoint of another model or with other flags, and by rule 5.
  std::optional<CheckpointState> restore(const RestoreOptions& options,
                                         const std::vector<StateTensor>& tensors);
  // Returns whether it is acknowledged; if not, prints why. Call restore() first.
  bool write(Snapshot& snapshot);
  // The smallest metric of the acknowledged checkpoints.
  [[nodiscard]] std::optional<double> best() const;

  [[nodiscard]] const TrainingRecord& record() const noexcept { return record_; }
  // Records that the training has finished, or (empty) continues. Throws FileError.
  void set_finished(std::optional<std::uint64_t> step, const std::string& goal,
                    const std::string& result);
  void beat() { owner_.beat(); }

  // For readers.
  [[nodiscard]] static std::vector<std::uint64_t> steps(FileSystem& files,
                                                        const std::string& directory);

 private:
  struct Found {
    CheckpointState state;
    std::exception_ptr trouble{};  // why the state cannot be read
  };

  void take_stock();
  std::optional<CheckpointState> newest(const RestoreOptions& options,
                                        const std::vector<StateTensor>& tensors);
  CheckpointState chosen(const RestoreOptions& options, const std::vector<StateTensor>& tensors);
  CheckpointState go_on_from(std::uint64_t step, const RestoreOptions& options,
                             const std::vector<StateTensor>& tensors);
  CheckpointState adopt(const std::string& folder, const RestoreOptions& options,
                        const std::vector<StateTensor>& tensors);
  void begin_training(const std::string& job);
  void put(const Snapshot& snapshot);
  void put_in_place(const std::string& unfinished, const std::string& folder);
  bool make_room(std::uint64_t for_step);
  void remove_old();
  void remove(std::uint64_t step);
  void remove_folder(const std::string& path, std::uint64_t step);
  void remove_damaged(std::uint64_t below);
  [[nodiscard]] bool counts(const Found& found) const;
  [[nodiscard]] bool stays(std::uint64_t step) const;
  [[nodiscard]] std::string folder(std::uint64_t step) const;
  [[nodiscard]] std::string working_name(std::uint64_t step) const;

  FileSystem& files_;
  const std::string directory_;
  const std::size_t keep_;
  const PrintLine say_;
  TrainingRecord record_;
  std::map<std::uint64_t, Found> found_;
  std::set<std::uint64_t> damaged_;      // renamed
  std::optional<std::uint64_t> newest_;  // acknowledged: from which a restart would resume
  struct Best {
    double metric;
    std::uint64_t step;
  };
  std::optional<Best> best_;
  bool warned_of_sync_ = false;
  Owner owner_;
};

// The name of the best checkpoint's step among the numbers of a checkpoint.
inline constexpr const char* kBestStep = "checkpoints/best_step";

}  // namespace ronde::trainer
