// SPDX-License-Identifier: Apache-2.0
// The roll of a job that starts: which ranks have called in, and the error that names those that
// have not. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace ronde::collectives {

// Why a rank cannot start.
struct StartTrouble {
  std::int32_t rank = -1;     // the rank that reports it
  std::int32_t culprit = -1;  // the rank at fault, as far as the reporter knows
  std::string text;           // empty if there is no trouble

  [[nodiscard]] base::Status status() const;
};

// Returns the trouble that is behind the others, or nullptr if there are none: a rank that is
// blamed and itself blames another one is not the culprit.
[[nodiscard]] const StartTrouble* root_cause(std::span<const StartTrouble> troubles);

// Thread safety: used by one thread at a time.
class Roll {
 public:
  explicit Roll(std::int32_t ranks) : ranks_(ranks), entries_(static_cast<std::size_t>(ranks)) {}

  // A new round begins, in which the ranks do something together ("telling addresses"). All of them
  // have finished the round before.
  void begin_round(std::string activity);
  [[nodiscard]] std::int32_t round() const { return round_; }

  // Records that a rank has called in this round. `host_size` is how many of the job's ranks are on
  // its host, 0 if the rank does not know.
  void record(std::int32_t rank, const std::string& host, std::int32_t host_size,
              base::Instant now);
  void set_hosts(const std::vector<std::string>& hosts);

  // The ranks that have not called in this round since then, ascending.
  [[nodiscard]] std::vector<std::int32_t> missing(base::Instant since) const;
  // The error that names these ranks, their hosts, and what they did last.
  [[nodiscard]] base::Status absent(const std::vector<std::int32_t>& ranks) const;

 private:
  struct Entry {
    std::string host;
    std::int32_t host_size = 0;
    std::int32_t round = 0;  // the round of the last call
    base::Instant called{};  // the time of the last call
  };

  [[nodiscard]] std::string host_of(std::int32_t rank) const;

  std::int32_t ranks_;
  std::vector<Entry> entries_;
  std::int32_t round_ = 0;
  std::string activity_;  // of this round
  std::string previous_;  // activity of the round before
};

}  // namespace ronde::collectives
