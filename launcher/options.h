// SPDX-License-Identifier: Apache-2.0
// The options of ronderun, and the program with the program's own options. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/option_values.h"

namespace ronde::launcher {

// Thread safety: a value.
struct Options {
  std::optional<std::int64_t> ranks;  // missing only together with help or version
  bool help = false;
  bool version = false;
  bool dry_run = false;
  bool verbose = false;
  bool tag = false;             // put the rank before each line
  bool accelerate_mpi = false;  // the ranks preload libronde_mpi_allreduce.so
  std::string
      output_dir;  // what the ranks print goes into files there; empty: to ronderun's output
  base::Nanoseconds stop_grace = std::chrono::seconds(20);  // after SIGTERM; 0: none
  std::int64_t restarts = 0;  // at most, of a job that failed or was stopped
  // A start that ran so long has all restarts before it forgiven.
  base::Nanoseconds restart_window = std::chrono::hours(1);
  std::string hosts;     // as mpirun's -H takes it; empty: this host
  std::string hostfile;  // empty: none
  std::string bind_to = "none";
  std::vector<std::string> mpi_args;  // for mpirun, word by word
  std::vector<Export> exports;        // from -x and from the options of the settings, in that order
  std::vector<std::string> program;   // the program and its own arguments, untouched
};

// Options end at the first word that is not one, or at "--"; the rest belongs to the program.
[[nodiscard]] base::Result<Options> parse_options(std::span<const std::string> arguments);

// What --help prints.
[[nodiscard]] std::string help_text();

}  // namespace ronde::launcher
