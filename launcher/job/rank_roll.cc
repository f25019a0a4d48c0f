// SPDX-License-Identifier: Apache-2.0
// Counting ends.
#include "launcher/job/rank_roll.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

namespace ronde::launcher {

namespace {

// Not by which a rank ends that has seen another one's end.
bool is_a_cause(int signal) {
  return signal == SIGKILL || signal == SIGSEGV || signal == SIGBUS || signal == SIGILL ||
         signal == SIGFPE;
}

// With which a rank ends that has been told of another one's end: neither signals nor codes that
// say what is wrong.
bool is_told(int exit_code) {
  return exit_code < kExitNotExecutable && exit_code != kExitUsage && exit_code != kExitConfig;
}

}  // namespace

bool RankRoll::knows(std::int32_t rank) const {
  return rank >= 0 && std::cmp_less(rank, ranks_.size());
}

int RankRoll::count(const Ended& ended, bool blames) {
  const int code = exit_code_of(ended.status);
  if (ended.rank < 0) mpirun_ = code;
  if (!knows(ended.rank)) return code;
  Rank& rank = ranks_[static_cast<std::size_t>(ended.rank)];
  rank.code = code;
  rank.killed = WIFSIGNALED(ended.status) && is_a_cause(WTERMSIG(ended.status));
  rank.last_line = ended.last_line;
  if (ended_well(code) || !blames) return code;
  // mpirun kills the others itself.
  if (!culprit_ || (rank.killed && !over_mpi_ && is_told(at(*culprit_).code.value_or(0)))) {
    culprit_ = ended.rank;
  }
  return code;
}

void RankRoll::lose(std::size_t host) {
  for (Rank& rank : ranks_) {
    if (rank.host == host && !rank.code) rank.code = EXIT_FAILURE;
  }
  if (over_mpi_) mpirun_ = EXIT_FAILURE;
}

bool RankRoll::all_reported() const {
  return std::ranges::all_of(ranks_, [](const Rank& one) { return one.code.has_value(); });
}

int RankRoll::exit_code() const {
  if (culprit_) return *at(*culprit_).code;
  if (mpirun_ && !all_reported()) return *mpirun_;
  const bool stopped =
      std::ranges::any_of(ranks_, [](const Rank& one) { return one.code == kExitStopped; });
  return stopped ? kExitStopped : 0;
}

std::string RankRoll::last_line() const {
  const std::string own = culprit_ ? at(*culprit_).last_line : "";
  return own.empty() ? last_.text() : own;
}

std::string RankRoll::shown(const Printed& printed, bool tag) {
  if (printed.error) last_.take(printed.bytes);
  if (!tag || !knows(printed.rank)) return printed.bytes;
  Rank& rank = ranks_[static_cast<std::size_t>(printed.rank)];
  return (printed.error ? rank.err : rank.out).take(printed.bytes);
}

std::string RankRoll::rest(bool error) {
  std::string text;
  for (Rank& rank : ranks_) text += (error ? rank.err : rank.out).finish();
  return text;
}

}  // namespace ronde::launcher
