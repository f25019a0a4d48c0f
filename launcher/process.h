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
#include "launcher/streams.h"

namespace ronde::launcher {

// How the job ended. Thread safety: a value.
struct Outcome {
  int exit_code = 0;         // as in a shell: 128 + number for a signal
  int interrupted = 0;       // the signal that ended the job from outside; 0: it ended by itself
  bool reader_gone = false;  // whoever read the output did not want more, as `head`
};

// Runs a command until it ends. SIGINT, SIGTERM and SIGHUP end all of it: the ranks of this
// host get SIGTERM at once and about a second to tidy up. A second such signal, or SIGQUIT, or
// `grace` without an end, kills it. SIGUSR1 and SIGUSR2 are passed on. The caller must have one
// thread only: signals are blocked in the whole process meanwhile. When the reader of the output
// goes away, the job ends as if it were told to.
[[nodiscard]] base::Result<Outcome> run_to_end(std::span<const std::string> argv, Streams& streams,
                                               const base::Clock& clock, base::Nanoseconds grace);

// The exit code of a wait status. Pure.
[[nodiscard]] int exit_code_of(int wait_status);

// Describes an outcome in one line; empty for success, and where nobody reads any more. `host` is
// that of every rank, or empty if there are several. Pure.
[[nodiscard]] std::string verdict(const Outcome& outcome, const Cause& cause,
                                  const std::string& host);

}  // namespace ronde::launcher
