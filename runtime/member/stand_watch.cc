// SPDX-License-Identifier: Apache-2.0
#include "runtime/member/stand_watch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/numbers.h"
#include "runtime/negotiate/deadlock_watch.h"
#include "runtime/negotiate/messages.h"

namespace ronde::runtime {

using base::Instant;
using base::kNever;

namespace {

// How long a tensor is in flight before somebody asks why, and how often from then on.
constexpr base::Nanoseconds kPatience = kStandingReported;

}  // namespace

void StandWatch::check() {
  if (context_.clock.about_now() + base::Clock::kCoarse < next_look_) return;
  const Instant now = context_.clock.now();
  if (now < next_look_) return;
  next_look_ = now + kPatience;
  const Instant oldest = this->oldest();
  if (oldest == kNever || now - oldest >= kPatience) return look(now);
  // Nothing has waited for long. What was reported is over.
  next_look_ = std::min(next_look_, oldest + kPatience);
  if (reported_) look(now);
}

Instant StandWatch::next() const {
  const Instant oldest = this->oldest();
  if (oldest == kNever) return reported_ ? next_look_ : kNever;  // it waits in process sets
  return std::max(oldest + kPatience, next_look_);
}

bool StandWatch::add_to(StandingAnnouncement& standing, const std::string& where) const {
  if (!hooks_.idle()) return false;
  const auto room = kMostTensorsStanding - std::min(kMostTensorsStanding, standing.tensors.size());
  const auto waiting = member_.table().waiting(room);
  if (!waiting) return false;
  for (const auto& [name, place] : waiting->oldest) {
    const std::string gap = where.empty() || place.empty() ? "" : ", ";
    standing.tensors.push_back({"'" + name + "'", where + gap + place});
  }
  standing.more += base::narrow<std::int64_t>(waiting->more);
  return hooks_.add_beside(standing, where);
}

void StandWatch::look(Instant now) {
  const Submitters::Look found = threads_.look(now);
  // A thread that waits for none of that may have been told a moment ago that it can go
  // on: then only one that has waited since the look before stands still.
  const bool since_before = still_ && moves_ == found.moves;
  still_ = found.still;
  moves_ = found.moves;
  const bool waits = !member_.table().empty() || oldest() <= now - kPatience;
  const bool stands = found.still && (since_before || waits);
  StandingAnnouncement standing{.stands = true, .moves = found.moves, .batches = member_.batches()};
  if (!stands || !hooks_.sets(standing) || !add_to(standing)) {
    if (!std::exchange(reported_, false)) return;
    return member_.announce(StandingAnnouncement{}, true).ignore();
  }
  reported_ = true;
  member_.announce(standing, true).ignore();
}

}  // namespace ronde::runtime
