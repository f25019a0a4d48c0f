// SPDX-License-Identifier: Apache-2.0
// The ranks of a job as ronderun knows them: which have ended, how, and which of them is to blame.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/job/outcome.h"
#include "launcher/lines.h"

namespace ronde::launcher {

// Ended by itself, and as it should.
[[nodiscard]] inline bool ended_well(int exit_code) {
  return exit_code == 0 || exit_code == kExitStopped;
}

// Thread safety: none.
class RankRoll {
 public:
  // `over_mpi`: mpirun starts the ranks, and may end without saying how they did.
  explicit RankRoll(bool over_mpi) : over_mpi_(over_mpi) {}
  void add(std::size_t host, std::int32_t rank) { ranks_.emplace_back(host, rank); }

  // Returns the exit code. With `blames`, a rank that has failed may be the cause: the first one,
  // or one that was killed, which others that have failed before may have been told of.
  int count(const Ended& ended, bool blames);
  // What a host that is lost takes with it.
  void lose(std::size_t host);

  [[nodiscard]] bool all_reported() const;
  // Nothing of the job can go on any more.
  [[nodiscard]] bool all_ended() const { return over_mpi_ ? mpirun_.has_value() : all_reported(); }
  [[nodiscard]] bool mpirun_runs() const { return over_mpi_ && !mpirun_; }
  [[nodiscard]] std::optional<std::int32_t> to_blame() const { return culprit_; }
  [[nodiscard]] std::size_t host_of(std::int32_t rank) const { return at(rank).host; }
  // That of the one to blame, or else of all.
  [[nodiscard]] int exit_code() const;
  // The last line of the one to blame on its standard error, or else that of the job; empty: none.
  [[nodiscard]] std::string last_line() const;

  // What the user sees of what a rank has printed; with its number before each line.
  [[nodiscard]] std::string shown(const Printed& printed, bool tag);
  // What is left of it, at the end.
  [[nodiscard]] std::string rest(bool error);

 private:
  struct Rank {
    Rank(std::size_t on, std::int32_t rank) : host(on), out(rank), err(rank) {}
    std::size_t host = 0;
    std::optional<int> code;
    bool killed = false;  // by somebody, or by a fault of its own
    std::string last_line;
    LineTagger out;
    LineTagger err;
  };
  [[nodiscard]] bool knows(std::int32_t rank) const;
  [[nodiscard]] const Rank& at(std::int32_t rank) const {
    return ranks_[static_cast<std::size_t>(rank)];
  }

  const bool over_mpi_;
  std::vector<Rank> ranks_;
  std::optional<int> mpirun_;  // its exit code, once it has ended
  std::optional<std::int32_t> culprit_;
  LastLine last_;  // of the standard error of all
};

}  // namespace ronde::launcher
