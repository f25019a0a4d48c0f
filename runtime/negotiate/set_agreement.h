// SPDX-License-Identifier: Apache-2.0
// How the coordinator of a job opens and ends process sets: the ranks of a set ask for it, in any
// order, and when all have it gets a number. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/job_shape.h"
#include "base/status.h"
#include "runtime/negotiate/messages.h"

namespace ronde::runtime {

// How many process sets of a job may be open at once: their numbers are from 1 to this. Between
// hosts each has tags of its own.
inline constexpr std::int32_t kMostSets = 1023;

// "process set 'tp' of ranks 0, 2"
[[nodiscard]] std::string set_phrase(const std::string& name,
                                     const std::vector<std::int32_t>& ranks);

// The same where its ranks have numbers of their own:
// "process set 'tp' (its ranks 0-1 are ranks 1, 3 of the job)"
[[nodiscard]] std::string phrase_within_set(const std::string& name,
                                            const std::vector<std::int32_t>& ranks);

// Ranks that ask for one name with different lists that have a rank in common disagree. Lists
// without one are different sets.
//
// Thread safety: none; only the coordinator's agent uses it. The shape must outlive it.
class SetAgreement {
 public:
  // warning, failure: after which a set that waits for ranks is reported, and refused, unless one
  // of them asks for another deadline.
  SetAgreement(const base::JobShape& shape, base::Nanoseconds warning, base::Nanoseconds failure)
      : shape_(shape), warning_(warning), failure_(failure) {}

  void on_announcement(std::int32_t rank, SetAnnouncement set, base::Instant now);
  void on_ended(std::int32_t rank, std::int32_t number);
  // This rank asks for no set any more. Without the leader of a host none is opened over several.
  void on_closing(std::int32_t rank);

  // Reports and refuses what is late. due(): when there may be something.
  void check(base::Instant now);
  [[nodiscard]] base::Instant due() const;

  // What was decided since the last call.
  [[nodiscard]] std::vector<Decision> take_decisions() { return std::exchange(decisions_, {}); }
  // How many decisions there have been about sets, those that nobody has taken too.
  [[nodiscard]] std::uint64_t decided() const { return decided_; }

 private:
  using Ranks = std::vector<std::int32_t>;
  using Key = std::pair<std::string, Ranks>;
  struct Pending {
    std::map<std::int32_t, SetAnnouncement> asked;  // by rank
    base::Instant since{};
    base::Instant refused_at = base::kNever;
    bool own_deadline = false;  // refused_at is that of a call
    bool reported = false;
  };
  using Pendings = std::map<Key, Pending>;
  // What was refused before all its ranks had asked: the others are told when they do.
  struct Refused {
    std::set<std::int32_t> owed;
    SetRefusedDecision why;
  };
  struct Open {
    std::set<std::int32_t> ranks;  // that have not ended it
  };

  void wait_for(Pending& pending, base::Nanoseconds deadline, base::Instant now) const;
  bool refuse_late(std::int32_t rank, const std::string& name);
  bool disagrees(std::int32_t rank, const SetAnnouncement& set);
  void refuse(Pendings::iterator pending, base::Code code, const std::string& text,
              std::int32_t rank);
  void open(Pendings::iterator pending);
  [[nodiscard]] static Ranks missing_of(const Pendings::value_type& pending);
  [[nodiscard]] std::int32_t free_number() const;
  // The first of those without which a set of these ranks cannot be opened any more; -1: none.
  [[nodiscard]] std::int32_t missed_by(const Ranks& ranks) const;

  const base::JobShape& shape_;
  const base::Nanoseconds warning_;
  const base::Nanoseconds failure_;
  Pendings pendings_;
  std::map<std::string, Refused> refused_;  // by name
  std::map<std::int32_t, Open> open_;       // by number
  std::set<std::int32_t> left_;
  void decide(Decision decision);

  std::vector<Decision> decisions_;
  std::uint64_t decided_ = 0;
};

}  // namespace ronde::runtime
