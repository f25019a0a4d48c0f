// SPDX-License-Identifier: Apache-2.0
// The directory of a training's checkpoints. Everything that decides which of them count, come and
// go is in this file, and a model visits it: two starts at a time in all orders, a kill after each
// system call, and each call failing.
//
// What lies there:
// - step-N/           a whole checkpoint
// - step-N.T.tmp/     one that the owner of term T writes or removes
// - step-N.T.old.tmp/ one that another of the same step replaces
// - step-N.damaged/   one that a start has found damaged, and has gone on without
// - training.json     which training the checkpoints must be of to count, and its result
// - owner-T, lock     who has the directory (owner.h)
//
// Rules:
// 1. A checkpoint is written as step-N.T.tmp; both files, the folder, the name and the directory
//    are synced, and only then it is acknowledged.
// 2. Where step-N is there already it becomes step-N.T.old.tmp until the new one has its name. A
//    start puts it back if neither has.
// 3. A checkpoint counts if its state.json names the training that training.json names. Who begins
//    anew, or goes on from another than the newest, writes a new name there, by one rename: from
//    then on all others count for nothing. They are removed once the first one of the new training
//    is acknowledged, and never before.
// 4. A restart of the same job, told by its name in training.json, goes on with what it has begun.
// 5. A start goes on from the newest one that counts and is whole. It passes over those that are
//    provably damaged alone; one that cannot be read, or none that is whole, ends it. If there are
//    checkpoints and none counts, it must be told what to do.
// 6. Of those that count the last `keep` stay, the newest acknowledged one and the best. A damaged
//    one that was put aside stays until it is older than all of these. Where the disk is full these
//    damaged ones go first, then the oldest of the others, and then the write is tried again.
// 7. Whoever finds its owner-T gone writes no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bindings/trainer/chief/checkpoint.h"
#include "bindings/trainer/disk/owner.h"
#include "bindings/trainer/loop/callbacks.h"

namespace ronde::trainer {

struct RestoreOptions {
  // auto: the newest, if there is any; must: the newest; never: begin anew; best; step-N; or the
  // path of a checkpoint elsewhere.
  std::string how = "auto";
  std::string job{};            // empty: no restart can be told from a first start
  Flags flags{};                // what must be the same
  bool accept_changes = false;  // what is not is said, not refused
};

// What is to be written, as it was when it was asked for.
struct Snapshot {
  CheckpointState state;
  std::string tensors;           // a file's bytes
  std::optional<double> metric;  // the smallest is the best
};

// Thread safety: belongs to one thread at a time, but for beat().
class CheckpointDirectory {
 public:
  // Makes the directory where it is missing, takes it, and tidies up what the killed have left.
  // Throws DataError where another training has it, or where it cannot be written.
  CheckpointDirectory(FileSystem& files, const std::string& directory, std::size_t keep, Say say,
                      const OwnerPatience& patience = {});

  // Reads a checkpoint into `tensors`; none: the training begins anew. Throws TrainerError with
  // what to do: for one of another model or with other flags, and as rule 5 says.
  std::optional<CheckpointState> restore(const RestoreOptions& options,
                                         const std::vector<StateTensor>& tensors);
  // Whether it is acknowledged; where not, a line says why. restore() has been called before.
  bool write(Snapshot& snapshot);
  // The smallest metric of those that were acknowledged.
  [[nodiscard]] std::optional<double> best() const;

  [[nodiscard]] const TrainingRecord& record() const noexcept { return record_; }
  // The training is over, or (empty) goes on. Throws FileError.
  void set_finished(std::optional<std::uint64_t> step, const std::string& goal,
                    const std::string& result);
  void beat() { owner_.beat(); }

  // For those who only read.
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
  const Say say_;
  TrainingRecord record_;
  std::map<std::uint64_t, Found> found_;
  std::set<std::uint64_t> damaged_;      // put aside
  std::optional<std::uint64_t> newest_;  // acknowledged: what a restart would go on from
  struct Best {
    double metric;
    std::uint64_t step;
  };
  std::optional<Best> best_;
  bool warned_of_sync_ = false;
  Owner owner_;
};

// The best one's step, among the numbers of a checkpoint.
inline constexpr const char* kBestStep = "checkpoints/best_step";

}  // namespace ronde::trainer
