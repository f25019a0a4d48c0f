// SPDX-License-Identifier: Apache-2.0
// The shape of a job: which ranks share a host. The shape decides which algorithm moves the data
// and, with the tensor itself, the bits of every result (the order rule). Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace ronde::base {

// Hosts are numbered by their lowest rank, which is the host's leader; so host 0 has rank 0. The
// position of a rank is its place among the ranks of its host, from 0 in rank order. Ranks of a
// host need not follow each other, and hosts need not have equally many.
//
// Thread safety: a value.
class JobShape {
 public:
  // leaders[r] is the lowest rank on the host of rank r. The error names a rank whose leader does
  // not fit those of the others.
  static Result<JobShape> of_leaders(std::span<const std::int32_t> leaders);
  static JobShape one_host(std::int32_t ranks);

  [[nodiscard]] std::int32_t ranks() const;
  [[nodiscard]] std::int32_t hosts() const;

  [[nodiscard]] std::int32_t host_of(std::int32_t rank) const;
  [[nodiscard]] std::int32_t position_of(std::int32_t rank) const;
  // The ranks of a host, ascending and never empty; valid while this object lives.
  [[nodiscard]] std::span<const std::int32_t> ranks_of(std::int32_t host) const;
  [[nodiscard]] std::int32_t leader_of(std::int32_t host) const { return ranks_of(host).front(); }

  // The number of ranks of every host that send to the others, each with a slice of its own: as
  // many as the smallest host has.
  [[nodiscard]] std::int32_t slices() const;

  // Sets the names of hosts in texts, by host; they decide nothing. Without names the texts have
  // numbers.
  void set_host_names(std::vector<std::string> names) { names_ = std::move(names); }
  [[nodiscard]] std::string host_name(std::int32_t host) const;

  // "4 hosts x 2 ranks", "hosts of 3 + 1 ranks".
  [[nodiscard]] std::string text() const;

 private:
  JobShape() = default;

  std::vector<std::int32_t> host_of_;                // by rank
  std::vector<std::int32_t> position_of_;            // by rank
  std::vector<std::vector<std::int32_t>> ranks_of_;  // by host
  std::vector<std::string> names_;                   // by host, or none
};

}  // namespace ronde::base
