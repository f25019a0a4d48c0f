// SPDX-License-Identifier: Apache-2.0
// The verdict that nothing can go on: every rank has reported that all of its threads wait, and
// nothing that they wait for can become complete. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/negotiate/messages.h"

namespace ronde::runtime {

// A rank that stands still reports it so often, and is taken not to any more if it has not done so
// for longer than this.
inline constexpr base::Nanoseconds kStandingReported = std::chrono::seconds(1);
inline constexpr base::Nanoseconds kStandingForgotten = 3 * kStandingReported;

// How many of its tensors a rank names.
inline constexpr std::size_t kMostTensorsStanding = 4;

// Thread safety: none; the coordinator uses it.
class DeadlockWatch {
 public:
  // grace: how long all ranks stand still, once that is known, before the job fails.
  DeadlockWatch(std::int32_t ranks, base::Nanoseconds grace);

  void on_standing(std::int32_t rank, const StandingAnnouncement& standing, base::Instant now);

  // Whether all ranks have reported that they stand still; cheap.
  [[nodiscard]] bool may_be() const { return standing_ == ranks_.size() || told_ != base::kNever; }

  struct Finding {
    bool fails = false;  // the grace is over; otherwise it begins
    std::string text;
  };
  // Something new about a deadlock. batches: how many have been decided, and answers about process
  // sets; a rank that did not know of the last one is about to go on. can_go_on: something is ready
  // on all ranks.
  std::optional<Finding> judge(std::uint64_t batches, bool can_go_on, base::Instant now);
  // When judge() is due; kNever: after the next report.
  [[nodiscard]] base::Instant next() const;

 private:
  struct Rank {
    StandingAnnouncement said;
    base::Instant heard{};
    base::Instant since{};  // when it said so first
  };
  [[nodiscard]] bool all_stand(std::uint64_t batches, base::Instant now) const;
  [[nodiscard]] bool sets_agree() const;
  [[nodiscard]] bool nothing_is_on_its_way() const;
  [[nodiscard]] base::Instant begin_of_grace() const;
  [[nodiscard]] std::string describe() const;

  const base::Nanoseconds grace_;
  std::vector<Rank> ranks_;
  std::size_t standing_ = 0;
  base::Instant told_ = base::kNever;  // when the grace began
};

}  // namespace ronde::runtime
