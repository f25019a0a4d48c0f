// SPDX-License-Identifier: Apache-2.0
// When a job that has failed is started again. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "launcher/mpirun_voice.h"
#include "launcher/process.h"

namespace ronde::launcher {

// Tells whether the job may go better when it is started again. Not after success, nor when it was
// stopped from outside, nor where the command line is wrong: with the exit codes 2 (a program's
// usage error), 126 and 127 (a shell's for a program that cannot run), or too few slots.
[[nodiscard]] bool may_restart(const Outcome& outcome, const Cause& cause);

// The pause before restart 1, 2, ...: a second, and twice as long each time, up to 30 s.
[[nodiscard]] base::Nanoseconds pause_before(std::int64_t restart);

// The line for the user. `failure` is that of verdict().
[[nodiscard]] std::string restart_line(const std::string& failure, std::int64_t restart,
                                       std::int64_t restarts);

}  // namespace ronde::launcher
