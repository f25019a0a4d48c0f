// SPDX-License-Identifier: Apache-2.0
// training.json: which training a directory's checkpoints must be of to count, and how it ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bindings/trainer/disk/file_system.h"

namespace ronde::trainer {

struct TrainingRecord {
  std::string training;  // its name, drawn by chance; that of the first in a directory is empty
  std::string job;       // which began it (RONDE_RESTART_JOB)
  // Once it is over: at which step, what it was to reach, and the program's last line.
  std::optional<std::uint64_t> finished_step;
  std::string goal;
  std::string result;
};

// Throws FileError; where there is none, it is that of the first training in a directory. Damaged
// where it is no longer what was written.
[[nodiscard]] TrainingRecord read_training_record(FileSystem& files, const std::string& directory);
// By one rename. Throws FileError.
void write_training_record(FileSystem& files, const std::string& directory,
                           const TrainingRecord& record);

}  // namespace ronde::trainer
