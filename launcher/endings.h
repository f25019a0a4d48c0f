// SPDX-License-Identifier: Apache-2.0
// What the end of a job means: a line for the user, and whether the job is started again. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "launcher/mpirun_voice.h"
#include "launcher/process.h"

namespace ronde::launcher {

// Describes an outcome in one line; empty for success, and where nobody reads any more. `host` is
// that of every rank, or empty if there are several.
[[nodiscard]] std::string verdict(const Outcome& outcome, const Cause& cause,
                                  const std::string& host);

// Tells whether the job may go better when it is started again. Not after success, nor when it was
// stopped from outside, nor where a repeat cannot help: with the exit codes 2 (a program's usage
// error), 78 (wrong settings), 126 and 127 (a shell's for a program that cannot run), or too few
// slots.
[[nodiscard]] bool may_restart(const Outcome& outcome, const Cause& cause);

// The pause before restart 1, 2, ...: a second, and twice as long each time, up to 30 s.
[[nodiscard]] base::Nanoseconds pause_before(std::int64_t restart);

// The line for the user. `failure` is that of verdict().
[[nodiscard]] std::string restart_line(const std::string& failure, std::int64_t restart,
                                       std::int64_t restarts);
// The line where every start fails alike.
[[nodiscard]] std::string giving_up_line(const std::string& failure);

// A start of the job that has ended. Thread safety: a value.
struct Start {
  Outcome outcome;
  Cause cause;
  std::string last_line;       // of the job's standard error; empty: none was seen
  base::Nanoseconds lasted{};  // from its start to its end
};

// Counts the restarts of one job. Thread safety: none.
class Restarts {
 public:
  enum class Next : std::uint8_t {
    kEnd,
    kAgain,
    kGiveUp,  // two starts in a row have ended at once, with the same last line
  };

  // A start that lasted as long as `window` has the restarts before it forgiven.
  Restarts(std::int64_t most, base::Nanoseconds window) : most_(most), window_(window) {}

  // Says what follows a start of the job.
  [[nodiscard]] Next after(const Start& start);
  // The number of the restart that follows: 1, 2, ...
  [[nodiscard]] std::int64_t number() const { return used_; }

 private:
  const std::int64_t most_;
  const base::Nanoseconds window_;
  std::int64_t used_ = 0;
  std::string failed_at_once_with_;  // the last line of the start before; empty: it did not
};

}  // namespace ronde::launcher
