// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensors/lateness.h"

#include <algorithm>

namespace ronde::runtime {

using base::Instant;
using base::MutexLock;
using base::Nanoseconds;

namespace {

constexpr const char* kOtherTensors = "other tensors";

// Times of another host may be anything, so nothing here may overflow.
Instant difference(Instant a, Instant b) {
  return Instant(static_cast<std::int64_t>(static_cast<std::uint64_t>(a.count()) -
                                           static_cast<std::uint64_t>(b.count())));
}

}  // namespace

void ArrivalSpan::add(std::int32_t rank, const ArrivalTime& arrival) {
  const Instant alone = difference(arrival.at, arrival.waited);
  add({arrival.at, arrival.at, rank, arrival.waited, alone, alone, rank});
}

void ArrivalSpan::add(const ArrivalSpan& other) {
  if (other.last_rank < 0) return;
  if (last_rank < 0) {
    *this = other;
    return;
  }
  first = std::min(first, other.first);
  earliest = std::min(earliest, other.earliest);
  if (other.last > last) {
    last = other.last;
    last_rank = other.last_rank;
    last_waited = other.last_waited;
  }
  if (other.latest <= latest) return;
  latest = other.latest;
  latest_rank = other.latest_rank;
}

ArrivalSpan ArrivalSpan::seen_at(Instant now) const {
  ArrivalSpan seen = *this;
  for (Instant* const time : {&seen.first, &seen.last, &seen.earliest, &seen.latest}) {
    *time = difference(now, *time);
  }
  return seen;
}

// No more than the others have really waited.
Nanoseconds ArrivalSpan::late() const {
  return std::min(difference(latest, earliest), difference(last, first));
}

std::int32_t ArrivalSpan::victim() const {
  return last_rank != latest_rank && last_waited >= late() / 2 ? last_rank : -1;
}

LateTensorOfRank& LateRanks::row(const std::string& tensor, std::int32_t rank) {
  const auto found = rows_.find({tensor, rank});
  if (found != rows_.end()) return found->second;
  const std::string& name = rows_.size() < kMostTensors ? tensor : kOtherTensors;
  const auto made = rows_.try_emplace({name, rank}).first;
  made->second.tensor = made->first.first.c_str();
  made->second.rank = rank;
  return made->second;
}

void LateRanks::add(const std::string& tensor, const ArrivalSpan& arrivals) {
  const Nanoseconds late = arrivals.late();
  if (arrivals.latest_rank < 0 || late < kLate) return;
  const MutexLock lock(mutex_);
  LateTensorOfRank& culprit = row(tensor, arrivals.latest_rank);
  ++culprit.steps;
  culprit.total += late;
  culprit.worst = std::max(culprit.worst, late);
  const std::int32_t victim = arrivals.victim();
  if (victim >= 0) ++row(tensor, victim).steps_as_victim;
}

std::vector<LateTensorOfRank> LateRanks::read() const {
  std::vector<LateTensorOfRank> rows;
  {
    const MutexLock lock(mutex_);
    rows.reserve(rows_.size());
    for (const auto& [key, one] : rows_) rows.push_back(one);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.total > b.total; });
  return rows;
}

}  // namespace ronde::runtime
