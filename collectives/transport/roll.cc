// SPDX-License-Identifier: Apache-2.0
// The verdict on a start that hangs: the root of several troubles, and the hosts of silent ranks.
#include "collectives/transport/roll.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/numbers.h"
#include "base/text.h"

namespace ronde::collectives {

using base::Code;
using base::Status;

namespace {
constexpr std::size_t kMostNamed = 8;
}  // namespace

Status StartTrouble::status() const {
  return Status::error(Code::kPeerFailed, "rank " + std::to_string(rank) + " cannot start: " + text)
      .with_rank(culprit >= 0 ? culprit : rank);
}

const StartTrouble* root_cause(std::span<const StartTrouble> troubles) {
  const StartTrouble* first = nullptr;
  for (const StartTrouble& one : troubles) {
    if (one.text.empty()) continue;
    if (first == nullptr) first = &one;
    const bool blamed_blames =
        std::any_of(troubles.begin(), troubles.end(), [&](const StartTrouble& other) {
          return !other.text.empty() && other.rank == one.culprit && other.culprit != other.rank;
        });
    if (!blamed_blames) return &one;
  }
  return first;
}

void Roll::begin_round(std::string activity) {
  previous_ = std::exchange(activity_, std::move(activity));
  ++round_;
}

void Roll::record(std::int32_t rank, const std::string& host, std::int32_t host_size,
                  base::Instant now) {
  entries_[base::narrow<std::size_t>(rank)] = {host, host_size, round_, now};
}

void Roll::set_hosts(const std::vector<std::string>& hosts) {
  for (std::size_t i = 0; i < std::min(hosts.size(), entries_.size()); ++i) {
    entries_[i].host = hosts[i];
  }
}

std::vector<std::int32_t> Roll::missing(base::Instant since) const {
  std::vector<std::int32_t> ranks;
  for (std::int32_t rank = 0; rank < ranks_; ++rank) {
    const Entry& entry = entries_[base::narrow<std::size_t>(rank)];
    if (entry.round != round_ || entry.called < since) ranks.push_back(rank);
  }
  return ranks;
}

// The host of a rank that has never called may follow from the hosts of the others and their sizes.
std::string Roll::host_of(std::int32_t rank) const {
  const Entry& entry = entries_[base::narrow<std::size_t>(rank)];
  if (!entry.host.empty()) return entry.host;
  std::map<std::string, std::int32_t> free;  // places of ranks that have never called, by host
  std::int32_t silent = 0;
  for (const Entry& other : entries_) {
    if (other.host.empty()) {
      ++silent;
      continue;
    }
    if (other.host_size == 0) return "unknown";
    free.try_emplace(other.host, other.host_size).first->second -= 1;
  }
  std::string only;
  for (const auto& [host, places] : free) {
    if (places > 0 && !std::exchange(only, host).empty()) return "unknown";
  }
  return !only.empty() && free[only] >= silent ? only : "unknown";
}

Status Roll::absent(const std::vector<std::int32_t>& ranks) const {
  std::vector<std::string> names;
  names.reserve(ranks.size());
  for (const std::int32_t rank : ranks) {
    names.push_back("rank " + std::to_string(rank) + " (host " + host_of(rank) + ")");
  }
  const std::string last =
      previous_.empty() ? "nothing was received from it before" : "its last step was " + previous_;
  return Status::error(Code::kDeadline,
                       base::some_of(std::move(names), kMostNamed) + " took no part in " +
                           activity_ + " in time; " + last +
                           ": it opens no engine, has ended, is stopped, or its host is cut off; "
                           "look at its output (RONDE_START_TIMEOUT_SECONDS raises the limit)")
      .with_rank(ranks.empty() ? -1 : ranks.front());
}

}  // namespace ronde::collectives
