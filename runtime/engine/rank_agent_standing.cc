// SPDX-License-Identifier: Apache-2.0
// What this rank waits for where it stands still, beside the tensors of its table.
#include <algorithm>
#include <optional>
#include <string>

#include "runtime/engine/rank_agent.h"
#include "runtime/negotiate/deadlock_watch.h"

namespace ronde::runtime {

using base::Instant;

// A thread stands still in a line now, or some go on that did.
void RankAgent::look_soon_at_lines(bool some_go_on) {
  bool soon = line_waits_.take_more() || some_go_on;
  for (RankAgent* const set : sets_.all()) {
    if (!set->line_waits_.take_more() && !some_go_on) continue;
    set->standing_.look_soon();
    soon = true;
  }
  if (soon) standing_.look_soon();
}

// Whether what is in flight in the process sets of this rank stands still, and what it is.
bool RankAgent::sets_stand(StandingAnnouncement& standing) {
  openings_.add_to(standing);
  for (RankAgent* const set : sets_.all()) {
    if (set->failure_.failed()) {
      standing.frames_sent += set->frames_sent_.load(std::memory_order_acquire);
      standing.frames_taken += set->frames_taken_;
      continue;
    }
    const std::string where = "process set '" + set->context_.set->name + "'";
    if (set->control_.waits_for_idle(set->execution_.device_full()) ||
        !set->standing_.add_to(standing, where)) {
      return false;
    }
    standing.sets.push_back({set->number(), set->member_.batches()});
  }
  return true;
}

std::optional<Instant> RankAgent::oldest_beside() const {
  const Instant opening = openings_.oldest();
  if (opening == base::kNever && !line_waits_.in_use() && !messages_.in_use()) return std::nullopt;
  return std::min({opening, line_waits_.oldest(), messages_.oldest()});
}

bool RankAgent::add_beside(StandingAnnouncement& standing, const std::string& where) const {
  for (const std::string& text : messages_.texts()) {
    if (standing.tensors.size() < kMostTensorsStanding) {
      standing.tensors.push_back({text, where});
    } else {
      ++standing.more;
    }
  }
  standing.frames_sent += frames_sent_.load(std::memory_order_acquire);
  standing.frames_taken += frames_taken_;
  return line_waits_.add_to(standing);
}

}  // namespace ronde::runtime
