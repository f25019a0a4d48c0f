// SPDX-License-Identifier: Apache-2.0
// Ranks and a coordinator, one action at a time: the driver chooses the next action, so that random
// and exhaustive schedules are the same code. problem() keeps the first broken promise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "runtime/negotiate/messages.h"
#include "runtime/negotiate/negotiator.h"
#include "runtime/tensors/joined.h"
#include "test/unit/runtime/negotiate/fake_arrival_words.h"

namespace ronde::runtime {

// The submissions of the ranks. signatures[n][k][r] is what rank r submits the k-th time as tensor
// n.
struct Workload {
  std::int32_t ranks = 1;
  std::int64_t capacity = 1;
  base::Bytes limit{1 << 20};
  std::vector<std::vector<std::vector<Signature>>> signatures;
  std::vector<std::vector<bool>> disagree;  // [n][k]: not all ranks submit the same
  std::set<std::int32_t> may_close;         // ranks that may close their engine at any time
  std::set<std::int32_t> may_force;         // ranks that may close it by force
  // Ranks may join with fewer submissions, at any time; where there are any, all join in the end.
  std::set<std::int32_t> may_join;
};

struct Action {
  enum class Kind { kSubmit, kHear, kReady, kBatch, kDeliver, kClose, kForce, kJoin };
  Kind kind;
  std::int32_t rank = 0;
  std::int32_t tensor = 0;
};

// Thread safety: none.
class Simulation {
 public:
  explicit Simulation(const Workload& workload);

  [[nodiscard]] std::vector<Action> possible() const;
  void apply(const Action& action);
  // With true, a rank arrives for an entry while the negotiator evicts it.
  void slip_in_on_eviction(bool slip) { slip_in_ = slip; }

  // Call this when no action but closing is possible: every submission must have been answered.
  void check_end();

  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] const std::string& trace() const { return trace_; }
  [[nodiscard]] const std::vector<Decision>& log() const { return log_; }
  [[nodiscard]] std::int64_t requests() const { return requests_; }
  // Equal keys have equal futures.
  [[nodiscard]] std::string key() const;

 private:
  struct Planned {
    std::uint32_t generation = 0;
    std::string name;
    AgreedTensor tensor;  // with those that are absent
  };
  struct Rank {
    std::map<std::int32_t, Planned> plan;
    std::map<std::string, std::size_t> in_flight;  // tensor -> which time
    std::vector<std::size_t> submitted;            // by tensor
    std::deque<std::vector<std::byte>> announcements;
    std::size_t delivered = 0;  // decisions
    // (tensor, which time) -> index of the decision that answered
    std::map<std::pair<std::string, std::size_t>, std::size_t> answers;
    bool closing = false;
    bool forced = false;
    bool departed = false;
    bool joined = false;
    bool all_joined = false;
    Joined known;  // as the decisions say that it has read
  };

  void problem(const std::string& what);
  void submit(std::int32_t rank, std::int32_t tensor);
  bool arrive(std::int32_t rank, const std::string& name, const Signature& signature);
  void hear(std::int32_t rank);
  void batch();
  void deliver(std::int32_t rank);
  void answer(Rank& rank, const std::string& name, const AgreedTensor* tensor);
  void flush();
  void append(const Decision& decision);
  void check_batch(const BatchDecision& batch);
  void check_item(const std::string& name, const AgreedTensor& tensor);
  void join(Rank& rank);
  // Whether the rank has joined before it has submitted this tensor so often.
  [[nodiscard]] static bool is_absent(const Rank& rank, const std::string& name, std::size_t time);
  [[nodiscard]] const Signature& submitted_signature(const std::string& name, std::size_t time,
                                                     std::int32_t rank) const;
  Rank& at(std::int32_t rank) { return ranks_.at(base::narrow<std::size_t>(rank)); }
  [[nodiscard]] std::int32_t index_of(const Rank& rank) const {
    return base::narrow<std::int32_t>(&rank - ranks_.data());
  }

  Workload workload_;
  FakeArrivalWords words_;
  Negotiator negotiator_;
  std::vector<Rank> ranks_;
  std::deque<std::int32_t> ready_queue_;
  std::vector<Decision> log_;
  std::map<std::int32_t, Planned> plan_;  // what the decisions in the log make of the plan
  std::set<std::pair<std::string, std::size_t>> batched_;
  std::set<std::int32_t> departed_;
  Joined joined_;  // as the decisions in the log say
  std::size_t joins_heard_ = 0;
  std::uint64_t sequence_ = 0;
  std::int64_t requests_ = 0;
  bool slip_in_ = false;
  std::string problem_;
  std::string trace_;
  std::string history_;  // the coordinator's actions, in order
};

[[nodiscard]] inline std::string tensor_name(std::int32_t tensor) {
  return "t" + std::to_string(tensor);
}
[[nodiscard]] inline std::size_t tensor_of(const std::string& name) {
  return base::narrow<std::size_t>(std::stoi(name.substr(1)));
}

// Tells whether two signatures agree; the rows of an all-to-all need not.
[[nodiscard]] inline bool same_call(const Signature& a, const Signature& b) {
  return a.operation == Operation::kAllToAll ? agree(a, b) : a == b;
}

inline Simulation::Simulation(const Workload& workload)
    : workload_(workload),
      words_(workload.ranks),
      negotiator_(workload.ranks, workload.capacity, words_),
      ranks_(base::narrow<std::size_t>(workload.ranks)) {
  for (Rank& rank : ranks_) rank.submitted.resize(workload_.signatures.size());
  words_.before_close = [this](std::int32_t entry) {
    if (!slip_in_ || words_.count(entry) != 0) return;
    for (Rank& rank : ranks_) {
      const auto planned = rank.plan.find(entry);
      if (planned == rank.plan.end() || rank.closing || rank.joined) continue;
      const std::string name = planned->second.name;
      const std::size_t tensor = tensor_of(name);
      if (rank.in_flight.contains(name)) continue;
      if (rank.submitted[tensor] == workload_.signatures[tensor].size()) continue;
      submit(index_of(rank), base::narrow<std::int32_t>(tensor));
    }
  };
}

inline std::vector<Action> Simulation::possible() const {
  using Kind = Action::Kind;
  std::vector<Action> actions;
  for (std::int32_t r = 0; r < workload_.ranks; ++r) {
    const Rank& rank = ranks_[base::narrow<std::size_t>(r)];
    for (std::size_t n = 0; n < workload_.signatures.size() && !rank.closing && !rank.joined; ++n) {
      const auto tensor = base::narrow<std::int32_t>(n);
      if (rank.submitted[n] == workload_.signatures[n].size()) continue;
      if (!rank.in_flight.contains(tensor_name(tensor))) {
        actions.push_back({Kind::kSubmit, r, tensor});
      }
    }
    bool all = true;
    for (std::size_t n = 0; n < workload_.signatures.size(); ++n) {
      all = all && rank.submitted[n] == workload_.signatures[n].size();
    }
    const bool may = all ? !workload_.may_join.empty() : workload_.may_join.contains(r);
    if (may && !rank.joined) actions.push_back({Kind::kJoin, r, 0});
    if (!rank.announcements.empty()) actions.push_back({Kind::kHear, r, 0});
    if (rank.delivered < log_.size() && !rank.departed) actions.push_back({Kind::kDeliver, r, 0});
    if (!rank.closing && workload_.may_close.contains(r)) actions.push_back({Kind::kClose, r, 0});
    if (!rank.forced && workload_.may_force.contains(r)) actions.push_back({Kind::kForce, r, 0});
  }
  if (!ready_queue_.empty()) actions.push_back({Kind::kReady});
  if (negotiator_.has_ready()) actions.push_back({Kind::kBatch});
  return actions;
}

inline void Simulation::apply(const Action& action) {
  static constexpr const char* kNames[] = {"submit",  "hear",  "ready", "batch",
                                           "deliver", "close", "force", "join"};
  trace_ += std::string(kNames[static_cast<std::size_t>(action.kind)]) + '(' +
            std::to_string(action.rank) + ',' + std::to_string(action.tensor) + ") ";
  switch (action.kind) {
    case Action::Kind::kSubmit:
      return submit(action.rank, action.tensor);
    case Action::Kind::kHear:
      return hear(action.rank);
    case Action::Kind::kReady: {
      const std::int32_t entry = ready_queue_.front();
      ready_queue_.pop_front();
      history_ += "ready" + std::to_string(entry) + '[' + words_.text() + "] ";
      negotiator_.on_entry_ready(entry);
      return flush();
    }
    case Action::Kind::kBatch:
      return batch();
    case Action::Kind::kDeliver:
      return deliver(action.rank);
    case Action::Kind::kJoin:
      return join(at(action.rank));
    case Action::Kind::kClose:
    case Action::Kind::kForce: {
      Rank& rank = at(action.rank);
      rank.closing = true;
      rank.forced = action.kind == Action::Kind::kForce;
      rank.announcements.push_back(encode(Announcement(ClosingAnnouncement{rank.forced})));
      return;
    }
  }
}

inline void Simulation::problem(const std::string& what) {
  if (problem_.empty()) problem_ = what;
}

inline const Signature& Simulation::submitted_signature(const std::string& name, std::size_t time,
                                                        std::int32_t rank) const {
  return workload_.signatures[tensor_of(name)][time][base::narrow<std::size_t>(rank)];
}

inline void Simulation::submit(std::int32_t r, std::int32_t tensor) {
  Rank& rank = at(r);
  const std::string name = tensor_name(tensor);
  const std::size_t time = rank.submitted[base::narrow<std::size_t>(tensor)]++;
  rank.in_flight[name] = time;
  const Signature& signature = submitted_signature(name, time, r);
  if (arrive(r, name, signature)) return;
  ++requests_;
  rank.announcements.push_back(
      encode(Announcement(RequestAnnouncement{name, "train.cc:" + std::to_string(r), signature})));
}

// Returns true when the rank could arrive: its plan has the name with the same signature.
inline bool Simulation::arrive(std::int32_t r, const std::string& name,
                               const Signature& signature) {
  for (const auto& [entry, planned] : at(r).plan) {
    if (planned.name != name) continue;
    Signature mine = planned.tensor.signature;
    const auto& rows = planned.tensor.first_dimensions;
    if (!rows.empty()) mine.shape[0] = rows[base::narrow<std::size_t>(r)];
    if (!same_call(mine, normalized(signature))) return false;
    const auto arrival = words_.arrive(r, entry, planned.generation);
    if (arrival == FakeArrivalWords::Arrival::kLast) ready_queue_.push_back(entry);
    return arrival != FakeArrivalWords::Arrival::kStale;
  }
  return false;
}

inline void Simulation::hear(std::int32_t r) {
  Rank& rank = at(r);
  const auto announcement = decode_announcement(rank.announcements.front());
  rank.announcements.pop_front();
  if (!announcement.ok()) return problem(announcement.status().message());
  history_ += "hear" + std::to_string(r) + '[' + words_.text() + "] ";
  if (const auto* request = std::get_if<RequestAnnouncement>(&*announcement)) {
    history_ += request->name + ' ';
    negotiator_.on_request(r, *request);
  } else if (std::holds_alternative<JoinAnnouncement>(*announcement)) {
    history_ += "join ";
    negotiator_.on_join(r);
    // Every entry has been closed, and the ranks learn of this before they are bound again.
    const auto ranks = base::narrow<std::size_t>(workload_.ranks);
    words_.expect(++joins_heard_ == ranks ? ranks : ranks - joins_heard_);
  } else {
    const bool forced = std::get<ClosingAnnouncement>(*announcement).forced;
    history_ += forced ? "force " : "close ";
    negotiator_.on_closing(r, {forced});
  }
  flush();
}

inline void Simulation::join(Rank& rank) {
  rank.joined = true;
  rank.announcements.push_back(encode(Announcement(JoinAnnouncement{})));
}

inline bool Simulation::is_absent(const Rank& rank, const std::string& name, std::size_t time) {
  return rank.joined && rank.submitted[tensor_of(name)] <= time;
}

inline void Simulation::batch() {
  history_ += "batch[" + words_.text() + "] ";
  const auto decided = negotiator_.next_batch(workload_.limit);
  if (!decided) return problem("something is ready, but there is no batch");
  check_batch(*decided);
  append(*decided);
  flush();
}

inline void Simulation::flush() {
  for (const Decision& decision : negotiator_.take_decisions()) append(decision);
}

inline void Simulation::append(const Decision& decision) {
  const auto again = decode_decision(encode(decision));
  if (!again.ok()) return problem(again.status().message());
  log_.push_back(*again);
  if (const auto* bind = std::get_if<BindDecision>(&*again)) {
    if (bind->entry >= workload_.capacity) problem("the plan is larger than its capacity");
    plan_[bind->entry] = {bind->generation, bind->name, bind->tensor};
    plan_[bind->entry].tensor.absent = joined_.ranks();
  } else if (const auto* joined = std::get_if<JoinedDecision>(&*again)) {
    joined_.add(joined->rank);
    if (joined->all) joined_.clear();
  } else if (const auto* evict = std::get_if<EvictDecision>(&*again)) {
    if (plan_.erase(evict->entry) == 0) problem("an entry is evicted that stands for nothing");
  } else if (const auto* error = std::get_if<ErrorDecision>(&*again)) {
    if (error->code == base::Code::kInternal) problem(error->text);
  } else if (const auto* left = std::get_if<DepartedDecision>(&*again)) {
    if (!departed_.insert(left->rank).second) problem("a rank departs twice");
    if (!at(left->rank).closing) problem("a rank departs that is not closing");
  }
}

inline void Simulation::deliver(std::int32_t r) {
  Rank& rank = at(r);
  const Decision& decision = log_[rank.delivered];
  if (const auto* bind = std::get_if<BindDecision>(&decision)) {
    const auto old = rank.plan.find(bind->entry);
    if (old != rank.plan.end() && old->second.name != bind->name) {
      problem("an entry gets another name without an eviction");
    }
    rank.plan[bind->entry] = {bind->generation, bind->name, bind->tensor};
    rank.plan[bind->entry].tensor.absent = rank.known.ranks();
  } else if (const auto* joined = std::get_if<JoinedDecision>(&decision)) {
    rank.known.add(joined->rank);
    if (joined->all) rank.known.clear();
    if (joined->all && !rank.joined) problem("a join ends before all ranks have joined");
    rank.all_joined = rank.all_joined || joined->all;
  } else if (const auto* evict = std::get_if<EvictDecision>(&decision)) {
    rank.plan.erase(evict->entry);
  } else if (const auto* error = std::get_if<ErrorDecision>(&decision)) {
    if (rank.in_flight.contains(error->name)) answer(rank, error->name, nullptr);
  } else if (const auto* batch = std::get_if<BatchDecision>(&decision)) {
    words_.hear(r, *batch);
    for (const BatchItem& item : batch->items) {
      const Planned planned = item.entry >= 0 ? rank.plan[item.entry] : Planned{};
      const AgreedTensor& tensor = item.entry >= 0 ? planned.tensor : item.tensor;
      if (std::ranges::binary_search(tensor.absent, r)) continue;
      answer(rank, item.entry >= 0 ? planned.name : item.name, &tensor);
    }
  } else if (const auto* left = std::get_if<DepartedDecision>(&decision)) {
    rank.departed = rank.departed || left->rank == r;
    if (rank.departed && !rank.in_flight.empty()) problem("a rank departs with tensors in flight");
  }
  ++rank.delivered;
}

inline void Simulation::answer(Rank& rank, const std::string& name, const AgreedTensor* tensor) {
  const auto found = rank.in_flight.find(name);
  if (found == rank.in_flight.end()) return problem(name + " is executed, but not in flight");
  if (tensor != nullptr) {
    const std::int32_t r = index_of(rank);
    Signature mine = tensor->signature;
    const auto& rows = tensor->first_dimensions;
    if (!rows.empty()) mine.shape[0] = rows[base::narrow<std::size_t>(r)];
    if (!same_call(mine, normalized(submitted_signature(name, found->second, r)))) {
      problem(name + " is executed as " + describe(mine) + ", which rank " + std::to_string(r) +
              " did not say");
    }
  }
  rank.answers[{name, found->second}] = rank.delivered;
  rank.in_flight.erase(found);
}

}  // namespace ronde::runtime

#include "test/property/negotiator_promises.h"  // IWYU pragma: export
