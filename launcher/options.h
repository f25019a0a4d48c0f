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

namespace ronde::launcher {

// A variable for every rank. Without a value, the rank gets the value it has here.
struct Export {
  std::string name;
  std::optional<std::string> value;
};

// Thread safety: a value.
struct Options {
  std::optional<std::int64_t> ranks;  // missing: one for each slot of the hosts
  bool help = false;
  bool version = false;
  bool check_build = false;
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
  std::string hosts;     // "a:2,b:2"; empty: those of the file, of an allocation, or this one
  std::string hostfile;  // empty: none
  // Starts a program on another host.
  std::vector<std::string> start{"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"};
  std::string agent;   // ronderun there; empty: at the same path as here
  std::string folder;  // where the ranks work; empty: where ronderun does
  std::string bind_to = "auto";
  bool mpi = false;                   // mpirun starts the ranks
  std::vector<std::string> mpi_args;  // for it, word by word
  std::vector<Export> exports;        // from -x and from the options of the settings, in that order
  std::vector<std::string> program;   // the program and its own arguments, untouched
};

// Options end at the first word that is not one, or at "--"; the rest belongs to the program, which
// ronderun doctor does without.
[[nodiscard]] base::Result<Options> parse_options(std::span<const std::string> arguments,
                                                  bool needs_program = true);

// What --help prints.
[[nodiscard]] std::string help_text();

}  // namespace ronde::launcher
