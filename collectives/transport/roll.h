// SPDX-License-Identifier: Apache-2.0
// Who has been heard of while a job starts, and what to say of those who have not. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace ronde::collectives {

// Why a rank cannot go on.
struct StartTrouble {
  std::int32_t rank = -1;     // that says so
  std::int32_t culprit = -1;  // whose fault it is, as far as it knows
  std::string text;           // empty: none

  [[nodiscard]] base::Status status() const;
};

// Of several troubles the one behind the others: a rank that is blamed and itself blames another is
// not the culprit. nullptr: there are none.
[[nodiscard]] const StartTrouble* root_cause(std::span<const StartTrouble> troubles);

// Thread safety: used by one thread at a time.
class Roll {
 public:
  explicit Roll(std::int32_t ranks) : ranks_(ranks), entries_(static_cast<std::size_t>(ranks)) {}

  // The ranks do something together; what they did before they have all done. "telling addresses".
  void next(std::string doing);
  [[nodiscard]] std::int32_t round() const { return round_; }

  // host_size: how many of the job's ranks are on that host; 0 if it does not know.
  void hear(std::int32_t rank, const std::string& host, std::int32_t host_size, base::Instant now);
  void know_hosts(const std::vector<std::string>& hosts);

  // Those who have said nothing in this round since then, ascending.
  [[nodiscard]] std::vector<std::int32_t> missing(base::Instant since) const;
  // An error that names them, where they are, and what they did last.
  [[nodiscard]] base::Status absent(const std::vector<std::int32_t>& ranks) const;

 private:
  struct Entry {
    std::string host;
    std::int32_t host_size = 0;
    std::int32_t round = 0;  // in which it was heard of
    base::Instant heard{};
  };

  [[nodiscard]] std::string host_of(std::int32_t rank) const;

  std::int32_t ranks_;
  std::vector<Entry> entries_;
  std::int32_t round_ = 0;
  std::string doing_;
  std::string before_;
};

}  // namespace ronde::collectives
