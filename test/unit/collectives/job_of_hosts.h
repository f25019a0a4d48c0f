// SPDX-License-Identifier: Apache-2.0
// A job of several hosts in one thread: a board on the heap for each host, and the in-memory
// transport between all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/group_transport.h"
#include "collectives/hierarchical_allreduce.h"
#include "collectives/job_shape.h"
#include "collectives/slots.h"
#include "test/unit/collectives/boards.h"
#include "test/unit/collectives/job_of_ranks.h"
#include "test/unit/collectives/shape_oracle.h"

namespace ronde::collectives {

[[nodiscard]] inline JobShape shape_of(const std::vector<std::int32_t>& leaders) {
  return JobShape::of_leaders(leaders).value();
}

[[nodiscard]] inline oracle::Hosts hosts_of(const JobShape& shape) {
  oracle::Hosts hosts;
  for (std::int32_t host = 0; host < shape.hosts(); ++host) {
    const auto ranks = shape.ranks_of(host);
    hosts.emplace_back(ranks.begin(), ranks.end());
  }
  return hosts;
}

// Thread safety: one thread at a time.
class JobOfHosts {
 public:
  JobOfHosts(JobShape shape, std::int64_t slot_lines, FaultPlan plan = {})
      : shape_(std::move(shape)), ranks_(shape_.ranks(), std::move(plan)) {
    slots_.resize(size());
    across_.resize(size());
    for (std::int32_t host = 0; host < shape_.hosts(); ++host) {
      const auto here = shape_.ranks_of(host);
      BoardGeometry geometry = small(static_cast<std::int32_t>(here.size()));
      geometry.slot_bytes = 64 * slot_lines * geometry.ranks;
      std::vector<Board> boards = make_boards(geometry);
      for (std::size_t position = 0; position < here.size(); ++position) {
        slots_[static_cast<std::size_t>(here[position])] =
            std::make_unique<Slots>(boards[position]);
      }
    }
    for (std::int32_t position = 0; position < shape_.slices(); ++position) group(position);
  }

  [[nodiscard]] const JobShape& shape() const { return shape_; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(shape_.ranks()); }
  [[nodiscard]] JobOfRanks& ranks() { return ranks_; }
  [[nodiscard]] Slots& slots(std::size_t rank) { return *slots_[rank]; }

  [[nodiscard]] HostsJob of(std::size_t rank) {
    return {.shape = shape_,
            .rank = static_cast<std::int32_t>(rank),
            .slots = *slots_[rank],
            .across = across_[rank].get(),
            .workspace = ranks_.workspace(static_cast<int>(rank)),
            .segment = base::Bytes(256)};
  }

 private:
  void group(std::int32_t position) {
    std::vector<int> members;
    members.reserve(static_cast<std::size_t>(shape_.hosts()));
    for (std::int32_t host = 0; host < shape_.hosts(); ++host) {
      members.push_back(shape_.ranks_of(host)[static_cast<std::size_t>(position)]);
    }
    for (const int rank : members) {
      across_[static_cast<std::size_t>(rank)] =
          std::make_unique<GroupTransport>(ranks_.transport(rank), members);
    }
  }

  const JobShape shape_;
  JobOfRanks ranks_;
  std::vector<std::unique_ptr<Slots>> slots_;            // by rank
  std::vector<std::unique_ptr<GroupTransport>> across_;  // by rank
};

}  // namespace ronde::collectives
