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
  const Instant first = oldest();
  if (first == kNever || now - first >= kPatience) return look(now);
  // Nothing has waited for long. What was reported is over.
  next_look_ = std::min(next_look_, first + kPatience);
  if (reported_) return look(now);
  static_cast<void>(all_wait(now));
}

Instant StandWatch::oldest() const {
  return std::min(member_.table().oldest(1), hooks_.beside().value_or(kNever));
}

Instant StandWatch::next() const {
  const Instant first = oldest();
  if (first == kNever) return reported_ ? next_look_ : kNever;  // it waits in process sets
  return std::max(first + kPatience, next_look_);
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

// A thread that waits for no tensor of the table, or another rank that waits for none, may have
// been told a moment ago that it can go on: then only one that has waited since an earlier look
// stands still.
bool StandWatch::all_wait(Instant now) {
  const Submitters::Look found = threads_.look(now);
  if (!still_ || moves_ != found.moves) still_since_ = now;
  still_ = found.still;
  moves_ = found.moves;
  const bool by_table = !member_.table().empty() && !hooks_.beside().has_value();
  return found.still && (by_table || now - still_since_ >= kPatience / 2);
}

void StandWatch::look(Instant now) {
  const bool stands = all_wait(now);
  StandingAnnouncement standing{.stands = true, .moves = moves_, .batches = member_.batches()};
  if (!stands || !hooks_.sets(standing) || !add_to(standing)) {
    if (!std::exchange(reported_, false)) return;
    return member_.announce(StandingAnnouncement{}, true).ignore();
  }
  reported_ = true;
  member_.announce(standing, true).ignore();
}

}  // namespace ronde::runtime
