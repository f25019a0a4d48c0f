// SPDX-License-Identifier: Apache-2.0
// One checkpoint: a directory step-N with tensors.safetensors and state.json. It appears whole or
// not at all: it is written as step-N.tmp, synced, and renamed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/chief/safetensors.h"
#include "bindings/trainer/loop/agreement.h"
#include "bindings/trainer/loop/metrics.h"

namespace ronde::trainer {

// How far a training has come, and what it must be to go on: everything but the tensors.
struct CheckpointState {
  std::uint64_t global_step = 0;      // steps taken since the very first start
  std::uint64_t optimizer_steps = 0;  // what Adam corrects by
  std::uint64_t epoch = 0;            // from 0: the one to go on with
  std::uint64_t step_in_epoch = 0;    // its steps that are done: the sampler's position
  Metrics epoch_sums;                 // of these steps, over all ranks
  // What callbacks keep, such as "early_stopping/best". Finite numbers.
  std::map<std::string, double> numbers;
  // What must be the same when training goes on: model, optimiser, schedule, global batch, seed.
  Flags flags;

  friend bool operator==(const CheckpointState&, const CheckpointState&) = default;
};

struct Checkpoint {
  CheckpointState state;
  LoadedTensors tensors;
};

// Writes a checkpoint into `directory`, which is made where it is missing, as
// step-<global_step>.tmp; syncs both files and their directory, renames it, and syncs `directory`.
// What was there under either name is replaced: while a step-N makes room for another it is called
// step-N.old.tmp. `tensors` are a file's bytes (to_safetensors). Throws DataError, which names the
// file and the system's reason; no step-N is there then that was not there before, unless it was
// the last sync that failed. Throws TrainerError for a number that is not finite.
void write_checkpoint(const std::string& directory, const CheckpointState& state,
                      const std::string& tensors);

// Reads step-<global_step>. Throws DataError, which names the file and what is wrong with it: one
// is missing, truncated, or has another checksum than state.json says.
[[nodiscard]] Checkpoint read_checkpoint(const std::string& directory, std::uint64_t global_step);
// The state alone, likewise.
[[nodiscard]] CheckpointState read_checkpoint_state(const std::string& directory,
                                                    std::uint64_t global_step);

// The steps of which there are checkpoints (whole or damaged), ascending; none where there is no
// such directory. Whatever has another name is left alone. Throws DataError where the directory
// cannot be read.
[[nodiscard]] std::vector<std::uint64_t> list_checkpoints(const std::string& directory);
// "<directory>/step-<global_step>".
[[nodiscard]] std::string checkpoint_path(const std::string& directory, std::uint64_t global_step);
// Renames it to step-N.tmp first, so that half of it is never taken for a whole one. Throws
// DataError.
void remove_checkpoint(const std::string& directory, std::uint64_t global_step);
// What a process that was killed has left: step-N.tmp is removed, and a step-N.old.tmp becomes
// step-N again where that is missing. For the one process that writes there. Throws DataError.
void clean_up_checkpoints(const std::string& directory);

// state.json as text and back; `tensors_checksum` is that of the other file. Pure. Numbers come
// back bit for bit. from_state_json throws DataError that begins with `file`.
[[nodiscard]] std::string to_state_json(const CheckpointState& state,
                                        const std::string& tensors_checksum);
[[nodiscard]] std::pair<CheckpointState, std::string> from_state_json(const std::string& text,
                                                                      const std::string& file);

// Why training cannot go on from this state with these flags: each flag that differs, with both
// values; empty: it can. Pure.
[[nodiscard]] std::string flags_that_differ(const CheckpointState& saved, const Flags& now);

}  // namespace ronde::trainer
