// SPDX-License-Identifier: Apache-2.0
// The numbers behind --restarts.
#include "launcher/restarts.h"

#include <algorithm>
#include <chrono>

namespace ronde::launcher {

namespace {

constexpr std::int64_t kLongestPause = 30;  // seconds
constexpr std::int64_t kMostDoublings = 5;  // reach it

}  // namespace

bool may_restart(const Outcome& outcome, const Cause& cause) {
  if (outcome.interrupted != 0 || outcome.reader_gone || cause.too_few_slots) return false;
  return outcome.exit_code != 0 && outcome.exit_code != 2 && outcome.exit_code != 126 &&
         outcome.exit_code != 127;
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

}  // namespace ronde::launcher
