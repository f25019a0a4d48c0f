// SPDX-License-Identifier: Apache-2.0
#include "runtime/sets/set_openings.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "runtime/negotiate/deadlock_watch.h"

namespace ronde::runtime {

using base::MutexLock;
using base::Status;

// This rank has left; others may still be in their sets.
SetOpenings::~SetOpenings() {
  const MutexLock lock(mutex_);
  for (const auto& [number, memory] : memory_) memory->keep();
}

Status SetOpenings::begin(const SetOpeningPtr& opening) {
  const MutexLock lock(mutex_);
  RONDE_RETURN_IF_ERROR(shut_);
  if (!names_.insert(opening->name).second) {
    return Status::error(base::Code::kDuplicateName, "process set '" + opening->name +
                                                         "' is open on this rank already: close it "
                                                         "first, or use another name");
  }
  opening_[opening->name] = opening;
  return {};
}

void SetOpenings::ended(const std::string& name) {
  const MutexLock lock(mutex_);
  names_.erase(name);
  opening_.erase(name);
}

void SetOpenings::keep(std::int32_t number, std::unique_ptr<SetMemory> memory) {
  const MutexLock lock(mutex_);
  memory_.emplace(number, std::move(memory));
}

base::Instant SetOpenings::oldest() const {
  base::Instant oldest = base::kNever;
  const MutexLock lock(mutex_);
  for (const auto& [name, opening] : opening_) oldest = std::min(oldest, opening->begun);
  return oldest;
}

void SetOpenings::add_to(StandingAnnouncement& standing) const {
  const MutexLock lock(mutex_);
  standing.batches += decisions_;
  for (const auto& [name, opening] : opening_) {
    if (standing.tensors.size() == kMostTensorsStanding) {
      ++standing.more;
      continue;
    }
    const std::string gap = opening->place.empty() ? "" : ", ";
    standing.tensors.push_back(
        {"'" + name + "'", "a process set that opens" + gap + opening->place});
  }
}

void SetOpenings::count() {
  const MutexLock lock(mutex_);
  ++decisions_;
}

SetOpeningPtr SetOpenings::take(const std::string& name) {
  const MutexLock lock(mutex_);
  const auto found = opening_.find(name);
  if (found == opening_.end()) return nullptr;
  SetOpeningPtr opening = std::move(found->second);
  opening_.erase(found);
  return opening;
}

bool SetOpenings::on_decision(const Decision& decision, std::int32_t rank,
                              const Complete& complete) {
  if (is_about_sets(decision)) count();
  if (const auto* open = std::get_if<SetDecision>(&decision)) {
    if (std::find(open->ranks.begin(), open->ranks.end(), rank) != open->ranks.end()) {
      on_open(*open, complete);
    }
    return true;
  }
  if (const auto* refused = std::get_if<SetRefusedDecision>(&decision)) {
    on_refused(*refused, rank, complete);
    return true;
  }
  const auto* ended = std::get_if<SetEndedDecision>(&decision);
  if (ended == nullptr) return false;
  const MutexLock lock(mutex_);
  memory_.erase(ended->number);
  return true;
}

void SetOpenings::on_open(const SetDecision& decision, const Complete& complete) {
  const SetOpeningPtr opening = take(decision.name);
  if (opening == nullptr) return;
  opening->decision = decision;
  if (opening->memory != nullptr) keep(decision.number, std::move(opening->memory));
  complete(opening->answered);
}

void SetOpenings::on_refused(const SetRefusedDecision& refused, std::int32_t rank,
                             const Complete& complete) {
  if (std::find(refused.told.begin(), refused.told.end(), rank) == refused.told.end()) return;
  const SetOpeningPtr opening = take(refused.name);
  if (opening == nullptr) return;
  opening->status = Status::remote(refused.code, refused.text, refused.place, refused.rank);
  complete(opening->answered);
}

void SetOpenings::shut(const Status& why, const Complete& complete) {
  std::map<std::string, SetOpeningPtr> failed;
  {
    const MutexLock lock(mutex_);
    if (shut_.ok()) shut_ = why;
    failed = std::exchange(opening_, {});
  }
  for (const auto& [name, opening] : failed) {
    // Others may have heard that it is open, and use the board.
    if (opening->memory != nullptr) opening->memory->keep();
    opening->status = why;
    complete(opening->answered);
  }
}

}  // namespace ronde::runtime
