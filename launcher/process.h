// SPDX-License-Identifier: Apache-2.0
// Runs mpirun, and makes sure that no process of the job outlives ronderun.
//
// Why not simply become mpirun: mpirun leaves its ranks behind when it is interrupted twice or
// killed, and it answers every signal with exit code 1. So ronderun stays, makes itself the parent
// of the processes that mpirun leaves behind, and ends them.
#pragma once

#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/mpirun_voice.h"
#include "launcher/signals.h"
#include "launcher/streams.h"

namespace ronde::launcher {

// What a shell adds to the number of a signal, for an exit code.
inline constexpr int kSignalBase = 128;

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
//   SIGUSR2, which it passes on. A job that ends within graces.stop keeps its exit code.
// - After that, and on SIGINT and SIGHUP, mpirun ends the job: the ranks of this host get SIGTERM
//   if they had none, and about a second to tidy up.
// - A second such signal, or SIGQUIT, or graces.end without an end, kills it.
// - SIGUSR1 and SIGUSR2 are passed on to mpirun.
// When the reader of the output goes away, the job ends as if SIGINT had come.
[[nodiscard]] base::Result<Outcome> run_to_end(std::span<const std::string> argv, Streams& streams,
                                               const Signals& signals, const base::Clock& clock,
                                               const Graces& graces);

// The exit code of a wait status. Pure.
[[nodiscard]] int exit_code_of(int wait_status);

// Describes an outcome in one line; empty for success, and where nobody reads any more. `host` is
// that of every rank, or empty if there are several. Pure.
[[nodiscard]] std::string verdict(const Outcome& outcome, const Cause& cause,
                                  const std::string& host);

}  // namespace ronde::launcher
