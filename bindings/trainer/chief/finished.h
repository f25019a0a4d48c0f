// SPDX-License-Identifier: Apache-2.0
// finished.json: the result of a training that has ended, beside its checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ronde::trainer {

struct Finished {
  std::uint64_t global_step = 0;
  std::string goal;    // what the training was to reach, as the program says it
  std::string result;  // the program's last line
};

// Empty where there is no such file, or it is damaged: then the training ends once more.
[[nodiscard]] std::optional<Finished> read_finished(const std::string& directory);
// Removes it, so that nobody takes it for that of a training that goes on.
void forget_finished(const std::string& directory);
// Replaces what was there. Throws DataError, which names the file.
void write_finished(const std::string& directory, const Finished& finished);

}  // namespace ronde::trainer
