// SPDX-License-Identifier: Apache-2.0
// Tells the coordinator that this rank stands still: all of its threads wait for tensors that are
// not in a batch. Where every rank does so, nothing can go on (deadlock_watch.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "runtime/member/member.h"
#include "runtime/member/rank_context.h"
#include "runtime/member/submitters.h"
#include "runtime/negotiate/messages.h"

namespace ronde::runtime {

// Shares the member, through which it reports, and the threads of the engine.
//
// Thread safety: none; only the agent uses it.
class StandWatch {
 public:
  // idle: whether nothing is executed on this rank.
  using Idle = std::function<bool()>;
  // Of a job: since when it has been opening a process set, and add_to() of its sets.
  struct Sets {
    std::function<base::Instant()> oldest;
    std::function<bool(StandingAnnouncement& standing)> add_to;
  };
  StandWatch(const RankContext& context, Member& member, const Submitters& threads, Idle idle,
             Sets sets)
      : context_(context),
        member_(member),
        threads_(threads),
        idle_(std::move(idle)),
        sets_(std::move(sets)) {}

  // Call it in every step; it mostly reads a clock.
  void check();
  // When the next look is due; kNever while nothing is in flight.
  [[nodiscard]] base::Instant next() const;
  // Adds what is in flight; false: some of it is executed, or will be.
  [[nodiscard]] bool add_to(StandingAnnouncement& standing, const std::string& where = "") const;

 private:
  void look(base::Instant now);
  [[nodiscard]] base::Instant oldest() const {
    return std::min(member_.table().oldest(1), sets_.oldest());
  }

  const RankContext& context_;
  Member& member_;
  const Submitters& threads_;
  const Idle idle_;
  const Sets sets_;
  base::Instant next_look_{};
  bool reported_ = false;  // that it stands still
  // As the last look found it.
  bool still_ = false;
  std::uint64_t moves_ = 0;
};

}  // namespace ronde::runtime
