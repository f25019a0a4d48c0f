// SPDX-License-Identifier: Apache-2.0
#include "runtime/negotiate/set_agreement.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/text.h"
#include "runtime/negotiate/stall_notice.h"

namespace ronde::runtime {

using base::Code;
using base::Instant;

namespace {

using Ranks = std::vector<std::int32_t>;

bool has(const Ranks& ranks, std::int32_t rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

bool meet(const Ranks& some, const Ranks& others) {
  return std::any_of(some.begin(), some.end(),
                     [&](std::int32_t rank) { return has(others, rank); });
}

std::string place_text(const SetAnnouncement& set) {
  return set.place.empty() ? "" : " at " + set.place;
}

Instant after(Instant since, base::Nanoseconds span) {
  return span >= base::kNever - since ? base::kNever : since + span;
}

// What can be said of a list before anybody agrees with it.
const char* trouble_of(const Ranks& ranks, std::int32_t rank, std::int32_t size) {
  if (!std::is_sorted(ranks.begin(), ranks.end(), std::less_equal<>()) || !has(ranks, rank)) {
    return "its ranks are not ascending, or lack the one that asks";
  }
  return ranks.front() < 0 || ranks.back() >= size ? "it has a rank that the job lacks" : nullptr;
}

}  // namespace

std::string set_phrase(const std::string& name, const Ranks& ranks) {
  return "process set '" + name + "' of " + base::ranks_phrase(ranks);
}

std::string phrase_within_set(const std::string& name, const Ranks& ranks) {
  Ranks own(ranks.size());
  std::iota(own.begin(), own.end(), 0);
  if (own == ranks) return set_phrase(name, ranks);
  return "process set '" + name + "' (its " + base::ranks_phrase(own) +
         (own.size() == 1 ? " is " : " are ") + base::ranks_phrase(ranks) + " of the job)";
}

void SetAgreement::decide(Decision decision) {
  if (is_about_sets(decision)) ++decided_;
  decisions_.push_back(std::move(decision));
}

void SetAgreement::on_announcement(std::int32_t rank, SetAnnouncement set, Instant now) {
  if (const char* const trouble = trouble_of(set.ranks, rank, shape_.ranks())) {
    decide(SetRefusedDecision{set.name,
                              {rank},
                              Code::kInternal,
                              "process set '" + set.name + "': " + trouble,
                              set.place,
                              rank});
    return;
  }
  if (refuse_late(rank, set.name) || disagrees(rank, set)) return;
  const auto [pending, fresh] = pendings_.try_emplace(Key{set.name, set.ranks});
  if (fresh) pending->second.since = now;
  wait_for(pending->second, base::Nanoseconds(set.deadline_ns), now);
  pending->second.asked[rank] = std::move(set);
  const Ranks& ranks = pending->first.second;
  if (const std::int32_t gone = missed_by(ranks); gone >= 0) {
    refuse(pending, Code::kClosed, "rank " + std::to_string(gone) + " has closed its engine", gone);
  } else if (pending->second.asked.size() == ranks.size()) {
    open(pending);
  }
}

// The first deadline of those that have asked counts.
void SetAgreement::wait_for(Pending& pending, base::Nanoseconds deadline, Instant now) const {
  const bool own = deadline > base::Nanoseconds(0);
  const Instant at = after(now, own ? deadline : failure_);
  if (at >= pending.refused_at) return;
  pending.refused_at = at;
  pending.own_deadline = own;
}

// Tells a rank that comes after the refusal: its call is the one that the others were told about,
// even if they have called again.
bool SetAgreement::refuse_late(std::int32_t rank, const std::string& name) {
  const auto known = refused_.find(name);
  if (known == refused_.end() || known->second.owed.erase(rank) == 0) return false;
  known->second.why.told = {rank};
  decide(known->second.why);
  if (known->second.owed.empty()) refused_.erase(known);
  return true;
}

bool SetAgreement::disagrees(std::int32_t rank, const SetAnnouncement& set) {
  const auto other = std::find_if(pendings_.begin(), pendings_.end(), [&](const auto& one) {
    return one.first.first == set.name && one.first.second != set.ranks &&
           meet(one.first.second, set.ranks);
  });
  if (other == pendings_.end()) return false;
  Ranks first;
  for (const auto& [asker, asked] : other->second.asked) first.push_back(asker);
  const SetAnnouncement& before = other->second.asked.begin()->second;
  Refused refused;
  refused.why = {set.name,
                 first,
                 Code::kMismatch,
                 "process set '" + set.name +
                     "': the ranks disagree: " + base::ranks_phrase(first) + " opened it with " +
                     base::ranks_phrase(before.ranks) + place_text(before) + ", rank " +
                     std::to_string(rank) + " with " + base::ranks_phrase(set.ranks) +
                     place_text(set) + ". Give all of them the same ranks",
                 before.place,
                 rank};
  refused.why.told.push_back(rank);
  decide(refused.why);
  for (const Ranks* ranks : {&other->first.second, &set.ranks}) {
    refused.owed.insert(ranks->begin(), ranks->end());
  }
  for (const std::int32_t told : refused.why.told) refused.owed.erase(told);
  pendings_.erase(other);
  if (!refused.owed.empty()) refused_.insert_or_assign(set.name, std::move(refused));
  return true;
}

void SetAgreement::refuse(Pendings::iterator pending, Code code, const std::string& text,
                          std::int32_t rank) {
  SetRefusedDecision why{
      pending->first.first,
      {},
      code,
      set_phrase(pending->first.first, pending->first.second) + " cannot open: " + text,
      pending->second.asked.begin()->second.place,
      rank};
  for (const auto& [asker, asked] : pending->second.asked) why.told.push_back(asker);
  decide(std::move(why));
  pendings_.erase(pending);
}

void SetAgreement::open(Pendings::iterator pending) {
  const Ranks ranks = pending->first.second;
  std::map<std::int32_t, std::int64_t> made;  // by host
  for (const auto& [rank, asked] : pending->second.asked) {
    if (!asked.trouble.empty()) {
      return refuse(pending, Code::kOutOfMemory,
                    "rank " + std::to_string(rank) + " has no memory for it: " + asked.trouble,
                    rank);
    }
    std::int64_t& of_host = made.emplace(shape_.host_of(rank), -1).first->second;
    of_host = std::max(of_host, asked.memory);
  }
  std::vector<std::int64_t> memory;  // hosts are in the order of their first ranks
  for (const std::int32_t rank : ranks) {
    const auto host = made.find(shape_.host_of(rank));
    if (host == made.end()) continue;
    memory.push_back(host->second);
    made.erase(host);
  }
  const std::int32_t number = free_number();
  if (number < 0) {
    return refuse(pending, Code::kUnsupported,
                  std::to_string(kMostSets) + " process sets of this job are open: close some", -1);
  }
  decide(SetDecision{number, pending->first.first, ranks, std::move(memory)});
  open_[number].ranks = {ranks.begin(), ranks.end()};
  pendings_.erase(pending);
}

std::int32_t SetAgreement::free_number() const {
  std::int32_t number = 1;
  for (const auto& [taken, set] : open_) {
    if (taken != number) break;
    ++number;
  }
  return number <= kMostSets ? number : -1;
}

std::int32_t SetAgreement::missed_by(const Ranks& ranks) const {
  const bool over_hosts = std::any_of(ranks.begin(), ranks.end(), [&](std::int32_t rank) {
    return shape_.host_of(rank) != shape_.host_of(ranks.front());
  });
  for (const std::int32_t gone : left_) {
    if (has(ranks, gone)) return gone;
    if (over_hosts && shape_.leader_of(shape_.host_of(gone)) == gone) return gone;
  }
  return -1;
}

void SetAgreement::on_ended(std::int32_t rank, std::int32_t number) {
  const auto set = open_.find(number);
  if (set == open_.end()) return;
  set->second.ranks.erase(rank);
  if (!set->second.ranks.empty()) return;
  open_.erase(set);
  decide(SetEndedDecision{number});
}

void SetAgreement::on_closing(std::int32_t rank) {
  left_.insert(rank);
  for (auto next = pendings_.begin(); next != pendings_.end();) {
    const auto pending = next++;
    if (missed_by(pending->first.second) < 0) continue;
    refuse(pending, Code::kClosed, "rank " + std::to_string(rank) + " has closed its engine", rank);
  }
}

// ---- what is late ----

std::vector<std::int32_t> SetAgreement::missing_of(const Pendings::value_type& pending) {
  Ranks missing;
  for (const std::int32_t rank : pending.first.second) {
    if (!pending.second.asked.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

void SetAgreement::check(Instant now) {
  for (auto next = pendings_.begin(); next != pendings_.end();) {
    const auto pending = next++;
    const base::Nanoseconds waited = now - pending->second.since;
    const bool late = now >= pending->second.refused_at;
    if (waited < warning_ && !late) continue;
    const Ranks missing = missing_of(*pending);
    if (late) {
      refuse(pending, Code::kDeadline,
             base::ranks_phrase(missing) + " did not open it within " + base::seconds_text(waited) +
                 deadline_text(pending->second.own_deadline),
             missing.front());
    } else if (!std::exchange(pending->second.reported, true)) {
      decide(NoticeDecision{set_phrase(pending->first.first, pending->first.second) +
                            " has waited " + base::seconds_text(waited) + " for " +
                            base::ranks_phrase(missing) + " to open it"});
    }
  }
}

Instant SetAgreement::due() const {
  Instant due = base::kNever;
  for (const auto& [key, pending] : pendings_) {
    due = std::min(due, pending.refused_at);
    if (!pending.reported) due = std::min(due, after(pending.since, warning_));
  }
  return due;
}

}  // namespace ronde::runtime
