// SPDX-License-Identifier: Apache-2.0
// Tells the coordinator that this rank stands still: all of its threads wait for tensors that are
// not in a batch, or for messages. Where every rank does so, nothing can go on (deadlock_watch.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
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
  struct Hooks {
    std::function<bool()> idle;  // whether nothing is executed on this rank
    // add_to() of the process sets of the job, and those that are being opened.
    std::function<bool(StandingAnnouncement& standing)> sets;
    // What is in no table: calls by lines, messages, and sets that are being opened. Since when the
    // oldest is waited for; kNever: none is; nothing: there has been none.
    std::function<std::optional<base::Instant>()> beside;
    std::function<bool(StandingAnnouncement& standing, const std::string& where)> add_beside;
  };
  StandWatch(const RankContext& context, Member& member, const Submitters& threads, Hooks hooks)
      : context_(context), member_(member), threads_(threads), hooks_(std::move(hooks)) {}

  // Call it in every step; it mostly reads a clock.
  void check();
  // The next check() looks: a thread that has stood still goes on, or one stands still now.
  void look_soon() { next_look_ = {}; }
  // When the next look is due; kNever while nothing is in flight.
  [[nodiscard]] base::Instant next() const;
  // Adds what is in flight; false: some of it is executed, or will be.
  [[nodiscard]] bool add_to(StandingAnnouncement& standing, const std::string& where = "") const;

 private:
  void look(base::Instant now);
  bool all_wait(base::Instant now);
  [[nodiscard]] base::Instant oldest() const;

  const RankContext& context_;
  Member& member_;
  const Submitters& threads_;
  const Hooks hooks_;
  base::Instant next_look_{};
  bool reported_ = false;  // that it stands still
  // As the last look found it.
  bool still_ = false;
  std::uint64_t moves_ = 0;
  base::Instant still_since_{};  // the first look that found the same
};

}  // namespace ronde::runtime
