// SPDX-License-Identifier: Apache-2.0
// Makes the command line of mpirun from the options and from the facts of this machine. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/options.h"

namespace ronde::launcher {

// What the command line depends on besides the options. Thread safety: a value.
struct Facts {
  std::string mpirun = "mpirun";         // as it will be started
  std::int64_t cores = 1;                // that this process may use: affinity and cgroup quota
  std::int64_t slots = 1;                // ranks that mpirun starts here by default
  bool is_root = false;                  // mpirun refuses root without an option
  std::vector<std::string> environment;  // lines "NAME=value"
  std::int64_t attempt = 0;              // how often the job has been started before
  std::string job;                       // a random number of this ronderun, as hex
  std::string tag_folder;                // of the pipes for --tag; empty: there are none
  std::string accelerator;               // libronde_mpi_allreduce.so, as the loader finds it
};

// How often a job has been started again, in the environment of its ranks: 0, 1, ...
inline constexpr const char* kAttemptVariable = "RONDE_RESTART_ATTEMPT";
// Which job was started again: the same for all starts of one ronderun, unless the user has named
// the job there.
inline constexpr const char* kJobVariable = "RONDE_RESTART_JOB";

// What ranks on several hosts show each other where they meet without MPI, as those of an engine do
// to which the program gives a meeting point. It is in an environment, never on a command line.
inline constexpr const char* kSecretVariable = "RONDE_JOB_SECRET";

// Thread safety: a value.
struct CommandLine {
  std::vector<std::string> argv;      // argv[0] is mpirun
  std::vector<std::string> messages;  // for the user, one line each, before anything starts
  bool one_host = false;              // every rank runs on this host
  // Whoever starts it puts a secret of the job (kSecretVariable) into mpirun's environment first.
  bool needs_secret = false;
};

// Refuses what cannot work, settings of Ronde included, with an error of one line.
[[nodiscard]] base::Result<CommandLine> make_command_line(const Options& options,
                                                          const Facts& facts);

// Joins words to one line that a POSIX shell reads back as the same words.
[[nodiscard]] std::string shell_quoted(std::span<const std::string> words);

}  // namespace ronde::launcher
