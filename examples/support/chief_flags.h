// SPDX-License-Identifier: Apache-2.0
// The flags of a training job that say what its chief does: save, go on, log, stop early.
#pragma once

#include <cstdint>
#include <string>

#include "bindings/trainer/chief/supervisor.h"
#include "examples/support/command_line.h"

namespace ronde::examples {

struct ChiefSettings {
  trainer::SupervisorOptions supervisor;  // without init
  trainer::Flags all_flags;
  std::uint64_t patience = 0;   // 0: no early stopping
  std::uint64_t log_every = 0;  // 0: nothing is printed by steps
  int threads = 1;              // of a rank's computing, which decide its rounding
  bool verbose = false;

  // How often a step is written into the logs.
  [[nodiscard]] std::uint64_t write_every() const { return log_every == 0 ? 50 : log_every; }
};

void add_chief_flags(CommandLine& line);

// Throws UsageError. A training may go on with other flags where they do not say what is learned.
[[nodiscard]] ChiefSettings read_chief_flags(const CommandLine& line);

}  // namespace ronde::examples
