// SPDX-License-Identifier: Apache-2.0
// The process sets that this rank opens, until the coordinator has answered, and the memory of
// their boards, until every rank has closed them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "runtime/drive/agent.h"
#include "runtime/negotiate/messages.h"
#include "runtime/sets/set_board.h"

namespace ronde::runtime {

// One that is being opened. Thread safety: the agent writes status and decision before it finishes
// `answered`.
struct SetOpening {
  std::string name;
  std::vector<std::int32_t> ranks;  // of the job
  std::string place;                // "file:line" of the caller; may be empty
  base::Instant begun{};
  std::unique_ptr<SetMemory> memory;  // on the rank that has made it on this host
  Completion answered;
  base::Status status;
  SetDecision decision;
};
using SetOpeningPtr = std::shared_ptr<SetOpening>;

// Thread safety: every function may be called from any thread.
class SetOpenings {
 public:
  using Complete = std::function<void(Completion&)>;

  SetOpenings() = default;
  SetOpenings(const SetOpenings&) = delete;
  SetOpenings& operator=(const SetOpenings&) = delete;
  ~SetOpenings();
  // An error if this rank has, or opens, one of that name.
  base::Status begin(const SetOpeningPtr& opening);
  // This rank has closed it, or will not open it after all: the name is free.
  void ended(const std::string& name);

  // Since when a set has been opening; kNever: none is.
  [[nodiscard]] base::Instant oldest() const;
  // Adds those that are opening, and how many decisions about sets have come.
  void add_to(StandingAnnouncement& standing) const;

  // More memory of the set of that number.
  void keep(std::int32_t number, std::unique_ptr<SetMemory> memory);

  // For the agent. True: the decision was about process sets.
  bool on_decision(const Decision& decision, std::int32_t rank, const Complete& complete);
  // No answer comes any more: fails what is being opened, and all later ones.
  void shut(const base::Status& why, const Complete& complete);

 private:
  void count();
  void on_open(const SetDecision& decision, const Complete& complete);
  void on_refused(const SetRefusedDecision& refused, std::int32_t rank, const Complete& complete);
  SetOpeningPtr take(const std::string& name);

  mutable base::Mutex mutex_;
  std::uint64_t decisions_ RONDE_GUARDED_BY(mutex_) = 0;
  base::Status shut_ RONDE_GUARDED_BY(mutex_);
  std::set<std::string> names_ RONDE_GUARDED_BY(mutex_);
  std::map<std::string, SetOpeningPtr> opening_ RONDE_GUARDED_BY(mutex_);
  std::multimap<std::int32_t, std::unique_ptr<SetMemory>> memory_
      RONDE_GUARDED_BY(mutex_);  // by number
};

}  // namespace ronde::runtime
