// SPDX-License-Identifier: Apache-2.0
// The words for exit codes, and the numbers behind --restarts.
#include "launcher/job/outcome.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "launcher/lines.h"

namespace ronde::launcher {

namespace {

constexpr std::int64_t kLongestPause = 30;  // seconds
constexpr std::int64_t kMostDoublings = 5;  // reach it
// A job that has not even read its data has ended at once.
constexpr std::chrono::seconds kAtOnce(10);

// How the job failed: "rank 1 on host a ended with exit code 3".
std::string failure_of(const Outcome& outcome) {
  const int signal = outcome.exit_code - kSignalBase;
  const char* name = signal > 0 ? sigabbrev_np(signal) : nullptr;
  const std::string code = "exit code " + std::to_string(outcome.exit_code);
  if (!outcome.rank.has_value() && name == nullptr) return "the job failed with " + code;
  std::string who = outcome.rank ? "rank " + std::to_string(*outcome.rank) : "a rank";
  if (!outcome.host.empty()) who += " on host " + outcome.host;
  if (name != nullptr) return who + " was killed by SIG" + name + " (" + code + ")";
  return who + " ended with " + code;
}

}  // namespace

int exit_code_of(int wait_status) {
  if (WIFSIGNALED(wait_status)) return kSignalBase + WTERMSIG(wait_status);
  return WEXITSTATUS(wait_status);
}

std::string verdict(const Outcome& outcome) {
  if (outcome.reader_gone) return "";
  if (outcome.interrupted != 0 && outcome.exit_code == kSignalBase + outcome.interrupted) {
    return std::string("the job was ended by SIG") + sigabbrev_np(outcome.interrupted);
  }
  if (outcome.exit_code == 0) return "";
  if (outcome.exit_code == kExitStopped) {
    return "the training was stopped and has saved its state (exit code 75), and goes on when it "
           "is started again";
  }
  if (!outcome.trouble.empty()) return outcome.trouble;
  std::string failure = failure_of(outcome);
  if (outcome.exit_code == kExitConfig) {
    return failure + ": its settings or its data are wrong, and starting it again does not help";
  }
  return failure;
}

bool may_restart(const Outcome& outcome) {
  if (outcome.interrupted != 0 || outcome.reader_gone) return false;
  return outcome.exit_code != 0 && outcome.exit_code != kExitUsage &&
         outcome.exit_code != kExitConfig && outcome.exit_code != kExitNotExecutable &&
         outcome.exit_code != kExitNotFound;
}

base::Nanoseconds pause_before(std::int64_t restart) {
  const auto doublings =
      static_cast<unsigned>(std::clamp<std::int64_t>(restart - 1, 0, kMostDoublings));
  return std::chrono::seconds(std::min(std::int64_t{1} << doublings, kLongestPause));
}

std::string restart_line(const std::string& failure, std::int64_t restart, std::int64_t restarts) {
  const auto pause = std::chrono::duration_cast<std::chrono::seconds>(pause_before(restart));
  return failure + ": restart " + std::to_string(restart) + " of " + std::to_string(restarts) +
         " follows in " + std::to_string(pause.count()) + " s";
}

std::string giving_up_line(const std::string& failure) {
  return failure +
         ": not started again, since two starts in a row have ended at once with the same last "
         "line";
}

Restarts::Next Restarts::after(const Start& start) {
  const std::string before = std::move(failed_at_once_with_);
  failed_at_once_with_.clear();
  if (start.lasted >= window_) used_ = 0;
  if (!may_restart(start.outcome) || most_ == 0) return Next::kEnd;
  // A training that was stopped on request has made no error that could come again.
  if (start.outcome.exit_code != kExitStopped && start.lasted < kAtOnce) {
    failed_at_once_with_ = without_time(start.outcome.last_line);
    if (used_ < most_ && !before.empty() && before == failed_at_once_with_) return Next::kGiveUp;
  }
  if (used_ == most_) return Next::kEnd;
  ++used_;
  return Next::kAgain;
}

}  // namespace ronde::launcher
