// SPDX-License-Identifier: Apache-2.0
// Which ranks the others wait for. Each rank leaves the time of its arrival beside its step's
// number; whoever takes a complete entry reads those of its host, and leaders carry what they have
// found up the tree with their reports: in a steady step no message, call or lock is added.
//
// A rank may come late because it has waited for another one itself, in a message or in an
// operation of a process set. So it leaves how long it has waited, too, and the rank at fault is
// the one that would have been the last if none had waited.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace ronde::runtime {

// Whoever is late by less than this is not counted.
inline constexpr base::Nanoseconds kLate = std::chrono::milliseconds(1);

// When a rank has submitted a tensor, and how long its thread had waited for others since the last
// batch ended there.
struct ArrivalTime {
  base::Instant at{};
  base::Nanoseconds waited{0};
};

// The arrivals of several ranks at one entry. Thread safety: a value.
struct ArrivalSpan {
  base::Instant first{};
  base::Instant last{};
  std::int32_t last_rank = -1;  // -1: no rank is known
  base::Nanoseconds last_waited{0};
  // As if no rank had waited.
  base::Instant earliest{};
  base::Instant latest{};
  std::int32_t latest_rank = -1;

  void add(std::int32_t rank, const ArrivalTime& arrival);
  void add(const ArrivalSpan& other);
  // Ages instead of times and the reverse: the clocks of two hosts have nothing in common.
  [[nodiscard]] ArrivalSpan seen_at(base::Instant now) const;

  // How much sooner all would have gone on without the latest rank's own delay.
  [[nodiscard]] base::Nanoseconds late() const;
  // The rank that came last only because it had waited for others; -1: there is none.
  [[nodiscard]] std::int32_t victim() const;

  friend bool operator==(const ArrivalSpan&, const ArrivalSpan&) = default;
};

// What one rank has been late with. A tensor counts once in each step.
struct LateTensorOfRank {
  const char* tensor = "";  // belongs to the record
  std::int32_t rank = 0;
  std::uint64_t steps = 0;  // in which the others waited for it
  base::Nanoseconds total{0};
  base::Nanoseconds worst{0};
  std::uint64_t steps_as_victim = 0;  // in which it came last because it had waited for others
};

// The record of a job, on the rank whose agent steps the coordinator.
//
// Thread safety: every function may be called from any thread.
class LateRanks {
 public:
  // All ranks have arrived. Takes the lock only where one of them was late.
  void add(const std::string& tensor, const ArrivalSpan& arrivals);
  // The worst in total first.
  [[nodiscard]] std::vector<LateTensorOfRank> read() const;

 private:
  // A program that invents names finds the later ones under one.
  static constexpr std::size_t kMostTensors = 4096;
  LateTensorOfRank& row(const std::string& tensor, std::int32_t rank) RONDE_REQUIRES(mutex_);

  mutable base::Mutex mutex_;
  std::map<std::pair<std::string, std::int32_t>, LateTensorOfRank> rows_ RONDE_GUARDED_BY(mutex_);
};

}  // namespace ronde::runtime
