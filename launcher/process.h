// SPDX-License-Identifier: Apache-2.0
// Runs mpirun, and makes sure that no process of the job outlives ronderun.
//
// Why not simply become mpirun: mpirun leaves its ranks behind when it is interrupted twice or
// killed, and it answers every signal with exit code 1. So ronderun stays, makes itself the parent
// of the processes that mpirun leaves behind, and ends them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/signals.h"
#include "launcher/streams.h"

namespace ronde::launcher {

// What a shell adds to the number of a signal, for an exit code.
inline constexpr int kSignalBase = 128;

// What the other exit codes mean that are neither success nor a failure like any other.
inline constexpr int kExitUsage = 2;            // wrong arguments: a repeat cannot help
inline constexpr int kExitStopped = 75;         // EX_TEMPFAIL: stopped on request, and saved
inline constexpr int kExitConfig = 78;          // EX_CONFIG: a repeat cannot help
inline constexpr int kExitNotExecutable = 126;  // a shell's
inline constexpr int kExitNotFound = 127;       // a shell's

// How the job ended. Thread safety: a value.
struct Outcome {
  int exit_code = 0;         // as in a shell: 128 + number for a signal
  int interrupted = 0;       // the signal that told the job to end from outside; 0: none did
  bool reader_gone = false;  // whoever read the output did not want more, as `head`
};

// How long a job that is told to stop may take.
struct Graces {
  base::Nanoseconds stop{};  // after SIGTERM, to end by itself; 0: mpirun ends it at once
  base::Nanoseconds end{};   // for mpirun to end it; then all of it is killed
};

// Runs a command until it ends, by itself or by a signal:
// - SIGTERM asks the job to end: the ranks of this host get it; where there is none, mpirun gets
//   SIGUSR2, which it passes on; where there is no mpirun either, the command gets SIGTERM. A job
//   that ends within graces.stop keeps its exit code.
// - After that, and on SIGINT and SIGHUP, mpirun ends the job: the ranks of this host get SIGTERM
//   if they had none, and about a second to tidy up.
// - A second such signal, or SIGQUIT, or graces.end without an end, kills it.
// - SIGUSR1 and SIGUSR2 are passed on to mpirun.
// When the reader of the output goes away, the job ends as if SIGINT had come.
// Once the job has ended well, with 0 or 75, processes that it has left behind have graces.stop, or
// what a stop has left of it; then, and after a failure at once, they are killed.
//
// `ranks` is the number of ranks of the whole job. If all of them ran here and left with 0 or 75
// after SIGTERM, the job did so too, whatever mpirun says, which may have had the signal as well.
[[nodiscard]] base::Result<Outcome> run_to_end(std::span<const std::string> argv,
                                               std::int64_t ranks, Streams& streams,
                                               const Signals& signals, const base::Clock& clock,
                                               const Graces& graces);

// The exit code of a wait status. Pure.
[[nodiscard]] int exit_code_of(int wait_status);

}  // namespace ronde::launcher
