// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a training: written beside it, on a thread of their own; the last few and the
// best one are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/trainer/chief/checkpoint.h"
#include "bindings/trainer/tensor/parameter.h"

namespace ronde::trainer {

// What to do with the checkpoints that are there.
enum class Restore {
  kAuto,  // go on from the latest whole one, if there is any
  kMust,  // likewise, but fail where there is none
  kNever  // begin anew; they are put aside, and removed when the first new one is written
};

struct CheckpointOptions {
  std::string directory;
  std::size_t keep = 5;  // so many of the last ones; 0 is taken for 1
};

// Prints a line for the user: what was skipped, or went wrong.
using Say = std::function<void(const std::string& line)>;

// On the chief alone. No wait has a deadline: each is for the thread of this object, which writes.
//
// Thread safety: belongs to one thread; `say` is called by this and by the thread that writes.
class Checkpoints {
 public:
  // Removes what a killed process has left half written. Throws DataError where another process
  // that lives has the directory.
  Checkpoints(const CheckpointOptions& options, Say say);
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;
  // Waits for what is being written.
  ~Checkpoints();

  // Copies the tensors and returns; the thread writes the copy. Where the one before is still being
  // written it waits for it. A checkpoint that cannot be written is said in one line, with what
  // happened; the older ones stay, and training goes on.
  void save(const CheckpointState& state, const std::vector<StateTensor>& tensors);
  // As save(); besides, this one stays until a better one comes: one with a smaller `metric`. That
  // is remembered in state.json, as "checkpoints/best_metric" and "checkpoints/best_step".
  void save_if_best(const CheckpointState& state, const std::vector<StateTensor>& tensors,
                    double metric);
  // Waits until everything is written; whether all of it could be, since the last call.
  bool flush();

  // The latest whole checkpoint that fits `flags` and `tensors`, read into them; none: there is
  // none (or `restore` says never). A damaged one is skipped: one line names it and says what is
  // wrong. Throws TrainerError for one of another model (which tensors differ and how) or with
  // other flags (which), and with Restore::kMust where there is none.
  std::optional<CheckpointState> restore(Restore restore, const Flags& flags,
                                         const std::vector<StateTensor>& tensors);

 private:
  class Writer;

  std::unique_ptr<Writer> writer_;
};

// Copies a checkpoint's tensors into these. Throws TrainerError, with nothing copied, where names
// or shapes differ: which. `where` names the checkpoint.
void copy_tensors(const LoadedTensors& from, const std::vector<StateTensor>& to,
                  const std::string& where);

}  // namespace ronde::trainer
