// SPDX-License-Identifier: Apache-2.0
// What the end of a job means: a line for the user, and whether the job is started again. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"

namespace ronde::launcher {

// What a shell adds to the number of a signal, for an exit code.
inline constexpr int kSignalBase = 128;

// What the other exit codes mean that are neither success nor a failure like any other.
inline constexpr int kExitUsage = 2;            // wrong arguments: a repeat cannot help
inline constexpr int kExitStopped = 75;         // EX_TEMPFAIL: stopped on request, and saved
inline constexpr int kExitConfig = 78;          // EX_CONFIG: a repeat cannot help
inline constexpr int kExitNotExecutable = 126;  // a shell's
inline constexpr int kExitNotFound = 127;       // a shell's

// The exit code of a wait status.
[[nodiscard]] int exit_code_of(int wait_status);

// How a start of the job ended. Thread safety: a value.
struct Outcome {
  int exit_code = 0;         // as in a shell: 128 + number for a signal
  int interrupted = 0;       // the signal that told the job to end from outside; 0: none did
  bool reader_gone = false;  // whoever read the output did not want more, as `head`
  std::optional<std::int64_t> rank{};  // that failed first
  std::string host{};                  // of that rank
  std::string last_line{};  // on its standard error, or else that of the job; empty: none was seen
  std::string trouble{};    // why nothing started, or what else went wrong: a whole line
  std::string unreachable{};  // a host where no agent could be started, as the user wrote it
};

// Describes an outcome in one line; empty for success, and where nobody reads any more.
[[nodiscard]] std::string verdict(const Outcome& outcome);

// Tells whether the job may go better when it is started again. Not after success, nor when it was
// stopped from outside, nor where a repeat cannot help: with the exit codes 2 (a program's usage
// error), 78 (wrong settings), 126 and 127 (a shell's for a program that cannot run).
[[nodiscard]] bool may_restart(const Outcome& outcome);

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
