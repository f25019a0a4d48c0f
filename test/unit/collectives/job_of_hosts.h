// SPDX-License-Identifier: Apache-2.0
// A job of several hosts in one thread: a board on the heap for each host, and the in-memory
// transport between all ranks.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/job_shape.h"
#include "collectives/in_host/slots.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/two_level/context.h"
#include "test/unit/collectives/boards.h"
#include "test/unit/collectives/job_of_ranks.h"
#include "test/unit/collectives/shape_oracle.h"

namespace ronde::collectives {

[[nodiscard]] inline base::JobShape shape_of(const std::vector<std::int32_t>& leaders) {
  return base::JobShape::of_leaders(leaders).value();
}

// Returns a text like "0022", for the name of a test.
[[nodiscard]] inline std::string name_of_leaders(const std::vector<std::int32_t>& leaders) {
  std::string name;
  for (const std::int32_t leader : leaders) name += std::to_string(leader);
  return name;
}

[[nodiscard]] inline oracle::Hosts hosts_of(const base::JobShape& shape) {
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
  JobOfHosts(base::JobShape shape, std::int64_t slot_lines, FaultPlan plan = {})
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

  [[nodiscard]] const base::JobShape& shape() const { return shape_; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(shape_.ranks()); }
  [[nodiscard]] JobOfRanks& ranks() { return ranks_; }
  [[nodiscard]] Slots& slots(std::size_t rank) { return *slots_[rank]; }

  [[nodiscard]] TwoLevelContext of(std::size_t rank) {
    return {.shape = shape_,
            .rank = static_cast<std::int32_t>(rank),
            .slots = *slots_[rank],
            .across = across_[rank].get(),
            .workspace = ranks_.workspace(static_cast<int>(rank)),
            .segment = base::Bytes(256),
            .block = default_block(shape_)};
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
          std::make_unique<Transport>(ranks_.transport(rank), members);
    }
  }

  const base::JobShape shape_;
  JobOfRanks ranks_;
  std::vector<std::unique_ptr<Slots>> slots_;       // by rank
  std::vector<std::unique_ptr<Transport>> across_;  // by rank
};

// Expects that all ranks of a host have used the same windows, which the next collective needs.
inline void expect_same_windows(JobOfHosts& job) {
  for (std::int32_t rank = 0; rank < job.shape().ranks(); ++rank) {
    const std::int32_t leader = job.shape().leader_of(job.shape().host_of(rank));
    ASSERT_EQ(job.slots(static_cast<std::size_t>(rank)).next_window(),
              job.slots(static_cast<std::size_t>(leader)).next_window());
  }
}

// A rank that runs collectives back to back, each begun as soon as the one before has finished on
// this rank: so ranks are in different ones.
//
// Thread safety: one thread at a time.
class BackToBack : public Collective {
 public:
  explicit BackToBack(std::size_t count) : count_(count) {}

  base::Result<StepResult> step() final {
    if (next_ == count_) return StepResult::kDone;
    if (current_ == nullptr) current_ = begin(next_);
    base::Result<StepResult> result = current_->step();
    if (!result.ok() || *result != StepResult::kDone) return result;
    current_.reset();
    check(next_++);
    return next_ == count_ ? StepResult::kDone : StepResult::kProgress;
  }

 protected:
  // The first tag of a collective, by its number: those that follow each other differ.
  [[nodiscard]] static int tag(std::size_t index) {
    return static_cast<int>(index % 8) * kTagsPerCollective;
  }

 private:
  virtual std::unique_ptr<Collective> begin(std::size_t index) = 0;
  // Checks the result of a collective.
  virtual void check(std::size_t index) = 0;

  const std::size_t count_;
  std::size_t next_ = 0;
  std::unique_ptr<Collective> current_;
};

}  // namespace ronde::collectives
