// SPDX-License-Identifier: Apache-2.0
// The words for exit codes, and the numbers behind --restarts.
#include "launcher/endings.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>

#include "launcher/lines.h"

namespace ronde::launcher {

namespace {

constexpr std::int64_t kLongestPause = 30;  // seconds
constexpr std::int64_t kMostDoublings = 5;  // reach it
// A job that has not even read its data has ended at once; mpirun itself takes a second or two.
constexpr std::chrono::seconds kAtOnce(10);

// How the job failed: "rank 1 on host a ended with exit code 3".
std::string failure_of(int exit_code, const Cause& cause, const std::string& host) {
  const int signal = exit_code - kSignalBase;
  const char* name = signal > 0 ? sigabbrev_np(signal) : nullptr;
  const std::string code = "exit code " + std::to_string(exit_code);
  std::string who = "a rank";
  if (cause.rank.has_value()) {
    who = "rank " + std::to_string(*cause.rank);
    const std::string& place = cause.host.empty() ? host : cause.host;
    if (!place.empty()) who += " on host " + place;
  }
  if (name != nullptr) return who + " was killed by SIG" + name + " (" + code + ")";
  if (!cause.rank.has_value()) return "the job failed with " + code;
  return who + " ended with " + code;
}

}  // namespace

std::string verdict(const Outcome& outcome, const Cause& cause, const std::string& host) {
  if (outcome.reader_gone) return "";
  if (outcome.interrupted != 0 && outcome.exit_code == kSignalBase + outcome.interrupted) {
    return std::string("the job was ended by SIG") + sigabbrev_np(outcome.interrupted);
  }
  if (outcome.exit_code == 0) return "";
  if (outcome.exit_code == kExitStopped) {
    return "the training was stopped and has saved its state (exit code 75), and goes on when it "
           "is "
           "started again";
  }
  if (!cause.trouble.empty()) return cause.trouble;
  std::string failure = failure_of(outcome.exit_code, cause, host);
  if (outcome.exit_code == kExitConfig) {
    return failure + ": its settings or its data are wrong, and starting it again does not help";
  }
  return failure;
}

bool may_restart(const Outcome& outcome, const Cause& cause) {
  if (outcome.interrupted != 0 || outcome.reader_gone || cause.too_few_slots) return false;
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
  if (!may_restart(start.outcome, start.cause) || most_ == 0) return Next::kEnd;
  // A training that was stopped on request has made no error that could come again.
  if (start.outcome.exit_code != kExitStopped && start.lasted < kAtOnce) {
    failed_at_once_with_ = without_time(start.last_line);
    if (used_ < most_ && !before.empty() && before == failed_at_once_with_) return Next::kGiveUp;
  }
  if (used_ == most_) return Next::kEnd;
  ++used_;
  return Next::kAgain;
}

}  // namespace ronde::launcher
