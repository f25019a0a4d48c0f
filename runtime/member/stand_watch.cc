// SPDX-License-Identifier: Apache-2.0
#include "runtime/member/stand_watch.h"

#include <algorithm>
#include <optional>

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
  const Instant oldest = member_.table().oldest(1);
  if (oldest == kNever || now - oldest >= kPatience) return look(now);
  // Nothing has waited for long. What was reported is over.
  next_look_ = std::min(next_look_, oldest + kPatience);
  if (reported_) look(now);
}

Instant StandWatch::next() const {
  const Instant oldest = member_.table().oldest(1);
  return oldest == kNever ? kNever : std::max(oldest + kPatience, next_look_);
}

void StandWatch::look(Instant now) {
  const Submitters::Look found = threads_.look(now);
  // A thread that waits for no tensor of the table may have been told a moment ago that it can go
  // on: then only one that has waited since the look before stands still.
  const bool since_before = still_ && moves_ == found.moves;
  still_ = found.still;
  moves_ = found.moves;
  const bool stands = found.still && (since_before || !member_.table().empty());
  const auto waiting =
      stands && idle_() ? member_.table().waiting(kMostTensorsStanding) : std::nullopt;
  if (!waiting) {
    if (!std::exchange(reported_, false)) return;
    return member_.announce(StandingAnnouncement{}, true).ignore();
  }
  reported_ = true;
  StandingAnnouncement standing{.stands = true, .moves = found.moves, .batches = member_.batches()};
  for (const auto& [name, place] : waiting->oldest) standing.tensors.push_back({name, place});
  standing.more = base::narrow<std::int64_t>(waiting->more);
  member_.announce(standing, true).ignore();
}

}  // namespace ronde::runtime
