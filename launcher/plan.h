// SPDX-License-Identifier: Apache-2.0
// Makes the plan of a job from the options and from the facts of this machine: which ranks start
// where, with which environment, by whom. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/hosts/hosts.h"
#include "launcher/job/job_plan.h"
#include "launcher/options.h"

namespace ronde::launcher {

// What the plan depends on besides the options. Thread safety: a value.
struct Facts {
  Self self;                             // what this host is called
  std::string folder;                    // in which ronderun was started
  std::string ronderun;                  // this program, as a path
  std::string mpirun = "mpirun";         // as it will be started
  std::int64_t cores = 1;                // that this process may use: affinity and cgroup quota
  std::int64_t slots = 1;                // ranks that mpirun starts here by default
  std::int64_t nodes = 1;                // of memory that these cores belong to
  bool is_root = false;                  // mpirun refuses root without an option
  bool has_ucx = true;                   // libronde_ucx.so is beside libronde.so
  std::string mpi_in_program;            // the MPI that the program is linked with; empty: none
  std::vector<std::string> environment;  // lines "NAME=value"
  std::int64_t attempt = 0;              // how often the job has been started before
  std::string job;                       // a random number of this ronderun, as hex
  std::string meeting;                   // and of this start
  std::string secret;                    // a new one
  std::string now;                       // for the files of --output-dir
  std::string accelerator;               // libronde_mpi_allreduce.so, as the loader finds it
  std::vector<std::string> lost;         // hosts that could not be reached
  ReadFile read;
};

// How often a job has been started again, in the environment of its ranks: 0, 1, ...
inline constexpr const char* kAttemptVariable = "RONDE_RESTART_ATTEMPT";
// Which job was started again: the same for all starts of one ronderun, unless the user has named
// the job there.
inline constexpr const char* kJobVariable = "RONDE_RESTART_JOB";

struct Plan {
  JobPlan job;
  std::vector<std::string> messages;  // for the user, one line each, before anything starts
  std::string binding_reason;         // for --verbose
  std::size_t hosts = 0;              // that the job may have, with ranks or without
};

// Refuses what cannot work, settings of Ronde included, with an error of one line.
[[nodiscard]] base::Result<Plan> make_plan(const Options& options, const Facts& facts);

// What --dry-run prints: the hosts and ranks, or mpirun's command line.
[[nodiscard]] std::string text_of(const Plan& plan);

// Whether a launcher sets this for its rank. What users set for Open MPI is none of these.
[[nodiscard]] bool is_of_a_rank(std::string_view name);

// Variables for every rank: every RONDE_* variable of this environment, then those of the options,
// then the attempt; the last one wins. Without a value: that of this environment.
[[nodiscard]] base::Result<std::vector<Export>> exports_of(const Options& options,
                                                           const Facts& facts);

// mpirun's command line, for a job whose ranks MPI introduces; written for, and tested with, Open
// MPI 4.1.
[[nodiscard]] std::vector<std::string> mpirun_line(const Options& options, const Facts& facts,
                                                   const std::vector<Export>& exports,
                                                   bool one_host, base::Nanoseconds link_timeout);

}  // namespace ronde::launcher
