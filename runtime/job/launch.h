// SPDX-License-Identifier: Apache-2.0
// What the launcher of this process said about the size of the job. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"

namespace ronde::runtime {

// Thread safety: a value.
struct Launch {
  std::string launcher;  // "Slurm (srun)"
  std::string variable;  // "SLURM_STEP_NUM_TASKS=4"
  std::int64_t ranks = 1;
};

// The innermost launcher's word, from lines "NAME=value": a launcher inside another one's
// allocation leaves the outer one's variables in place. Nothing if no launcher gave a size.
[[nodiscard]] std::optional<Launch> launch_of(std::span<const std::string> environment);

// Refuses a job of one rank if the launcher started more: it is not the launcher of `mpi`, so each
// of its processes would train alone, and all would write the same files.
[[nodiscard]] base::Status check_launch(std::span<const std::string> environment,
                                        std::int64_t ranks, const std::string& mpi);

}  // namespace ronde::runtime
