// SPDX-License-Identifier: Apache-2.0
// The contents of a checkpoint (a folder with tensors.safetensors and state.json), and of
// training.json. checkpoint_directory.h writes and removes such folders.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/agreement.h"
#include "bindings/trainer/fit/metrics.h"
#include "bindings/trainer/keep/file_system.h"
#include "bindings/trainer/keep/safetensors.h"
#include "bindings/trainer/tensor/parameter.h"

namespace ronde::trainer {

// The state of a training, without the tensors: its progress, and the settings that must be the
// same to resume it.
struct CheckpointState {
  std::uint64_t global_step = 0;      // steps taken since the very first start
  std::uint64_t optimizer_steps = 0;  // Adam corrects its bias by them
  std::uint64_t epoch = 0;            // in which to resume, from 0
  std::uint64_t step_in_epoch = 0;    // completed steps of that epoch
  Metrics epoch_sums;                 // of these steps, over all ranks
  // The state of callbacks, such as "early_stopping/best". Finite numbers.
  std::map<std::string, double> numbers;
  // Must be equal when training resumes: model, optimiser, schedule, data, seed.
  Flags flags;
  std::string training;              // its id (checkpoint_directory.h)
  std::vector<std::string> moments;  // the names of the optimiser's tensors

  friend bool operator==(const CheckpointState&, const CheckpointState&) = default;
};

struct Checkpoint {
  CheckpointState state;
  std::shared_ptr<const std::string> bytes;  // of tensors.safetensors, in which the tensors lie
  TensorsInBytes tensors;
};

// Makes the folder, writes both files and syncs all of it. `tensors` are a file's bytes
// (to_safetensors). Throws FileError, and TrainerError for a number that is not finite.
void write_checkpoint(FileSystem& files, const std::string& folder, const CheckpointState& state,
                      const std::string& tensors);

// Throws Damaged where a file is missing, truncated or has another checksum than state.json says;
// FileError where it cannot be read; DataError for one of a newer Ronde.
[[nodiscard]] Checkpoint read_checkpoint(FileSystem& files, const std::string& folder);
// The state alone, likewise.
[[nodiscard]] CheckpointState read_checkpoint_state(FileSystem& files, const std::string& folder);

// The advice to a user whose training cannot resume from a checkpoint.
inline constexpr const char* kInsteadOfGoingOn =
    ": use another --logdir, or --restore never, which replaces what is there";

// Copies a checkpoint's tensors into these. Throws TrainerError, with nothing copied, if names or
// shapes differ. `where` names the checkpoint.
void copy_tensors(const TensorsInBytes& from, const std::vector<StateTensor>& to,
                  const std::string& where);

// training.json: the training whose checkpoints in the directory are valid, and its result.
struct TrainingRecord {
  std::string training;  // a random id; empty for the first training in a directory
  std::string job;       // RONDE_RESTART_JOB of the process that started it
  // Once it has finished: its last step, its goal, and the program's last line.
  std::optional<std::uint64_t> finished_step;
  std::string goal;
  std::string result;
};

// Throws FileError; where the file is missing, the record of the first training in a directory.
// Throws Damaged where its checksum is wrong.
[[nodiscard]] TrainingRecord read_training_record(FileSystem& files, const std::string& directory);
// Atomic, by one rename. Throws FileError.
void write_training_record(FileSystem& files, const std::string& directory,
                           const TrainingRecord& record);

// "crc32:" and the 8 hexadecimal digits of CRC-32, as of gzip and Python's zlib.crc32().
[[nodiscard]] std::string checksum_text(std::string_view bytes);

// state.json as text and back; `tensors_checksum` is that of the other file. Pure. Numbers come
// back bit for bit. from_state_json throws Damaged that begins with `file`, and DataError for a
// newer format.
[[nodiscard]] std::string to_state_json(const CheckpointState& state,
                                        const std::string& tensors_checksum);
[[nodiscard]] std::pair<CheckpointState, std::string> from_state_json(const std::string& text,
                                                                      const std::string& file);

// Each flag in which a resumed training differs from this state, with both values; empty: none.
// Pure.
[[nodiscard]] std::string flags_that_differ(const CheckpointState& saved, const Flags& now);

}  // namespace ronde::trainer
