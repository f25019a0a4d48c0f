// SPDX-License-Identifier: Apache-2.0
// The negotiator's records: requests, arrivals, the plan's entries, and ranks that leave.
// negotiator_batches.cc chooses what goes into a batch, negotiator_steps.cc knows in which steps
// the ranks are.
#include "runtime/negotiate/negotiator.h"

#include <utility>

#include "runtime/negotiate/disagreement.h"

namespace ronde::runtime {

namespace {

// The search for an entry to evict stops after a hundred: a plan whose hundred least recently used
// entries are all in use is too small, and then tensors travel by name.
constexpr int kEvictionTries = 100;

std::unique_ptr<BatchItem> by_name(const std::string& name, const AgreedTensor& tensor) {
  const auto kind = tensor.absent.empty() ? BatchItem::kByName : BatchItem::kByNameWithAbsent;
  return std::make_unique<BatchItem>(BatchItem{kind, name, tensor});
}

}  // namespace

Negotiator::Negotiator(std::int32_t ranks, Reporters reporters, std::int64_t plan_capacity,
                       ArrivalWords& arrivals)
    : ranks_(ranks),
      reporters_(reporters),
      capacity_(plan_capacity),
      arrivals_(arrivals),
      leaving_(static_cast<std::size_t>(ranks), Leaving::kNo) {}

Negotiator::Entry& Negotiator::entry_at(std::int32_t entry) {
  return entries_.at(static_cast<std::size_t>(entry));
}

void Negotiator::on_request(std::int32_t rank, const RequestAnnouncement& request) {
  auto pending = pendings_.find(request.name);
  if (pending == pendings_.end()) {
    const auto known = entry_of_name_.find(request.name);
    if (known != entry_of_name_.end()) {
      pending = unbind(known->second);
    } else {
      pending = pendings_.emplace(request.name, Pending{}).first;
      pending->second.statements.resize(static_cast<std::size_t>(ranks_));
    }
  }
  auto& statement = pending->second.statements.at(static_cast<std::size_t>(rank));
  if (statement.has_value()) {
    fail(pending, base::Code::kInternal,
         "'" + request.name + "': rank " + std::to_string(rank) +
             " announced it twice; this is a bug in Ronde",
         request.place, rank);
    return;
  }
  statement = Statement{normalized(request.signature), request.place, request.step};
  statement->not_finite = request.not_finite;
  ++pending->second.requests;
  settle(pending);
  if (anyone_leaving_) sweep();
}

void Negotiator::on_entry_ready(std::int32_t index) {
  if (index < 0 || base::narrow<std::size_t>(index) >= entries_.size()) return;
  Entry& entry = entry_at(index);
  // Where the generation was closed while its last rank was reporting, unbind() has counted the
  // arrivals already.
  if (entry.state != EntryState::kBound || entry.is_ready) return;
  // Such a late report must not count for the next generation, nor count twice.
  if (entry.here) return;
  const std::uint32_t all = static_cast<std::uint32_t>(reporters_.ranks_here) - joined_here_;
  if (arrivals_.count(index) != all) return;
  entry.here = true;
  report_ready(index, arrivals_.steps(index, joined_), arrivals_.arrivals(index, joined_));
}

void Negotiator::on_subtree_ready(const ReadyReport& report) {
  if (report.entry < 0 || base::narrow<std::size_t>(report.entry) >= entries_.size()) return;
  const Entry& entry = entry_at(report.entry);
  if (entry.state != EntryState::kBound || entry.is_ready) return;
  if (entry.generation == report.generation) {
    report_ready(report.entry, report.steps, report.arrivals);
  }
}

// Every reporter reports once a step, and the next step begins when the entry is in a batch.
void Negotiator::report_ready(std::int32_t index, const StepSpan& steps,
                              const ArrivalSpan& arrivals) {
  Entry& entry = entry_at(index);
  entry.steps.add(steps);
  entry.arrivals.add(arrivals);
  if (++entry.reports <= reporters_.subtrees) return;
  if (entry.steps.agrees()) {
    if (late_ != nullptr) late_->add(entry.name, entry.arrivals);
    return push_ready(index, true);
  }
  // Every rank waits for this tensor, which fails when all hosts have closed its generation.
  const StepSpan differ = entry.steps;
  const auto pending = unbind(index);
  pending->second.steps = differ;
  settle(pending);
}

void Negotiator::forget_reports(Entry& entry) {
  entry.reports = 0;
  entry.here = false;
  entry.steps = {};
  entry.arrivals = {};
}

void Negotiator::on_closed(const ClosedReport& report) {
  const std::int32_t index = report.entry;
  if (index < 0 || base::narrow<std::size_t>(index) >= entries_.size()) return;
  const Entry& entry = entry_at(index);
  // The answer is no longer needed when every rank has sent a full request meanwhile.
  if (entry.generation != report.generation || entry.state != EntryState::kUnbound) return;
  const auto pending = pendings_.find(entry.name);
  if (pending == pendings_.end() || pending->second.entry != index) return;
  pending->second.anonymous += report.arrived;
  for (std::size_t i = 0; i < report.ranks.size(); ++i) {
    const std::int64_t word = i < report.steps.size() ? report.steps[i] : 0;
    pending->second.anonymous_elsewhere[report.ranks[i]] =
        StepNumber::of_word(static_cast<std::uint64_t>(word));
  }
  --pending->second.awaited;
  settle(pending);
  end_joins();
  if (anyone_leaving_) sweep();
}

void Negotiator::name_what_is_ready() {
  ready_.for_each([this](Ready& ready) {
    if (ready.entry < 0) return;
    Entry& entry = entry_at(ready.entry);
    arrivals_.close_generation(ready.entry, ++entry.generation);
    if (reporters_.subtrees > 0) {
      decisions_.emplace_back(CloseDecision{ready.entry, entry.generation});
    }
    use_order_.erase(entry.use);
    entry_of_name_.erase(entry.name);
    release_entry(ready.entry);
    ready = {-1, false, by_name(entry.name, entry.tensor)};
  });
}

void Negotiator::on_closing(std::int32_t rank, const ClosingAnnouncement& closing) {
  auto& leaving = leaving_.at(static_cast<std::size_t>(rank));
  if (leaving == Leaving::kDeparted) {
    if (closing.forced) tell_left(rank);
    return;
  }
  leaving = closing.forced ? Leaving::kForced : Leaving::kClosing;
  last_steps_[rank] = closing.step;
  if (!anyone_leaving_) {
    anyone_leaving_ = true;
    // From here on the coordinator must know which rank is ready for what, so ranks no longer count
    // themselves in: all send full requests.
    const std::list<std::int32_t> bound = use_order_;
    for (const std::int32_t index : bound) {
      if (!entry_at(index).is_ready) settle(unbind(index));
    }
    name_what_is_ready();
  }
  sweep();
}

Negotiator::Pendings::iterator Negotiator::unbind(std::int32_t index) {
  Entry& entry = entry_at(index);
  Pending pending;
  pending.entry = index;
  pending.statements.resize(static_cast<std::size_t>(ranks_));
  ++entry.generation;
  pending.anonymous = arrivals_.close_generation(index, entry.generation);
  pending.awaited = reporters_.subtrees;
  if (pending.awaited > 0) decisions_.emplace_back(CloseDecision{index, entry.generation});
  forget_reports(entry);
  pending.anonymous_tensor = entry.tensor;
  pending.anonymous_place = entry.place;
  entry.state = EntryState::kUnbound;
  use_order_.erase(entry.use);
  entry_of_name_.erase(entry.name);
  return pendings_.emplace(entry.name, std::move(pending)).first;
}

// Resolves a pending record for which no rank is missing, and erases one for which no rank has
// arrived or sent a request.
void Negotiator::settle(Pendings::iterator pending) {
  const std::uint32_t accounted = pending->second.anonymous + pending->second.requests;
  if (accounted == 0) {
    if (pending->second.awaited > 0) return;
    release_entry(pending->second.entry);
    pendings_.erase(pending);
  } else if (joined_.any() && pending->second.awaited > 0) {
    return;  // whether a rank had arrived before it has joined
  } else if (accounted + absent_from(pending->second) >= static_cast<std::uint32_t>(ranks_)) {
    resolve(pending);
  }
}

void Negotiator::resolve(Pendings::iterator position) {
  const std::string& name = position->first;
  Pending& pending = position->second;
  const StepSpan steps = steps_of(pending);
  if (!steps.agrees()) {
    fail(position, base::Code::kMismatch, steps_differ(name, steps), pending.anonymous_place,
         steps.high.rank);
    return;
  }
  std::vector<std::int32_t> absent;
  const std::vector<Statement> statements = statements_of(pending, absent);
  auto agreed = agree_on(name, statements);
  if (agreed.ok() && !absent.empty()) {
    agreed->absent = std::move(absent);
    agreed->signature.on_board = false;
    const base::Status possible = check_absent(name, *agreed);
    if (!possible.ok()) agreed = possible;
  }
  if (!agreed.ok()) {
    const base::Status& why = agreed.status();
    fail(position, why.code(), why.message(), statements.front().place, why.rank().value_or(-1));
    return;
  }
  const std::int32_t entry = anyone_leaving_ || agreed->absent != joined_.ranks()
                                 ? -1
                                 : bind(name, pending.entry, *agreed, statements.front().place);
  if (entry < 0) release_entry(pending.entry);
  if (entry < 0) {
    ready_.push(kind_of(*agreed), payload_of(*agreed), {-1, false, by_name(name, *agreed)});
  } else {
    push_ready(entry, false);
  }
  pendings_.erase(position);
}

void Negotiator::fail(Pendings::iterator pending, base::Code code, const std::string& text,
                      const std::string& place, std::int32_t rank) {
  decisions_.emplace_back(ErrorDecision{pending->first, code, text, place, rank});
  release_entry(pending->second.entry);
  pendings_.erase(pending);
}

std::int32_t Negotiator::bind(const std::string& name, std::int32_t index, AgreedTensor tensor,
                              std::string place) {
  if (index < 0) index = take_free_entry();
  if (index < 0) return -1;
  Entry& entry = entry_at(index);
  entry.state = EntryState::kBound;
  entry.name = name;
  entry.place = std::move(place);
  entry.tensor = std::move(tensor);
  entry.kind = kind_of(entry.tensor);
  entry.bytes = payload_of(entry.tensor);
  entry.use = use_order_.insert(use_order_.end(), index);
  entry_of_name_[name] = index;
  decisions_.emplace_back(BindDecision{index, entry.generation, name, entry.tensor});
  return index;
}

// Returns an entry whose arrival word is at (generation, 0) and whose generation no rank holds; -1
// if the plan has none.
std::int32_t Negotiator::take_free_entry() {
  std::int32_t index = -1;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (std::cmp_less(entries_.size(), capacity_)) {
    index = base::narrow<std::int32_t>(entries_.size());
    entries_.emplace_back();
  } else {
    int tries = 0;
    for (auto next = use_order_.begin(); next != use_order_.end();) {
      const std::int32_t candidate = *next++;
      if (++tries > kEvictionTries) break;
      const Entry& entry = entry_at(candidate);
      if (entry.is_ready || entry.reports != 0 || arrivals_.count(candidate) != 0) continue;
      const auto pending = unbind(candidate);
      // The entry is free when the other hosts have answered; until then the tensor travels by
      // name.
      if (pending->second.awaited > 0) break;
      if (pending->second.anonymous != 0) {
        // Ranks have arrived since the count was read, so their tensor keeps the entry.
        settle(pending);
        continue;
      }
      decisions_.emplace_back(EvictDecision{candidate});
      pendings_.erase(pending);
      index = candidate;
      break;
    }
  }
  if (index < 0) return -1;
  Entry& entry = entry_at(index);
  ++entry.generation;
  arrivals_.close_generation(index, entry.generation);
  return index;
}

void Negotiator::release_entry(std::int32_t index) {
  if (index < 0) return;
  entry_at(index).state = EntryState::kFree;
  entry_at(index).is_ready = false;
  forget_reports(entry_at(index));
  decisions_.emplace_back(EvictDecision{index});
  free_.push_back(index);
}

bool Negotiator::includes(const Pending& pending, std::int32_t rank) const {
  if (pending.statements[static_cast<std::size_t>(rank)]) return true;
  if (pending.anonymous_elsewhere.contains(rank)) return true;
  return pending.anonymous > 0 && pending.entry >= 0 && has_arrived(rank, pending.entry);
}

void Negotiator::sweep() {
  for (auto next = pendings_.begin(); next != pendings_.end();) {
    const auto pending = next++;
    if (pending->second.awaited > 0) continue;
    for (std::int32_t rank = 0; rank < ranks_; ++rank) {
      const Leaving leaving = leaving_[static_cast<std::size_t>(rank)];
      if (leaving == Leaving::kNo) continue;
      const bool included = includes(pending->second, rank);
      if (included && leaving == Leaving::kClosing) continue;
      const char* how = included
                            ? " closed its engine before every rank had submitted it"
                            : " closed its engine without submitting it (did it throw? look at "
                              "its output)";
      const std::string steps = who_is_behind(&pending->second, pending->second.entry, rank);
      fail(pending, base::Code::kClosed,
           "'" + pending->first + "' cannot complete: rank " + std::to_string(rank) + how +
               (steps.empty() ? "" : ": " + steps + kOneLeftOut),
           "", rank);
      break;
    }
  }
  // What is left was submitted by every rank that leaves, so they depart when it is done.
  if (!pendings_.empty() || !ready_.empty()) return;
  for (std::int32_t rank = 0; rank < ranks_; ++rank) {
    auto& leaving = leaving_[static_cast<std::size_t>(rank)];
    if (leaving == Leaving::kNo || leaving == Leaving::kDeparted) continue;
    const bool left = leaving == Leaving::kForced;
    leaving = Leaving::kDeparted;
    decisions_.emplace_back(DepartedDecision{rank, last_steps_[rank]});
    if (left) tell_left(rank);
  }
}

// It has departed before.
void Negotiator::tell_left(std::int32_t rank) {
  if (reporters_.subtrees > 0) {
    decisions_.emplace_back(DepartedDecision{rank, last_steps_[rank], true});
  }
}

std::vector<Decision> Negotiator::take_decisions() { return std::exchange(decisions_, {}); }

bool Negotiator::find_out(const std::string& name) {
  if (reporters_.subtrees == 0) return true;
  const auto bound = entry_of_name_.find(name);
  // A ready entry is complete, so there is nothing to ask about it.
  if (bound != entry_of_name_.end() && !entry_at(bound->second).is_ready) {
    settle(unbind(bound->second));
  }
  const auto pending = pendings_.find(name);
  return pending == pendings_.end() || pending->second.awaited == 0;
}

bool Negotiator::was_in_batch_since(const std::string& name, std::uint64_t batches) const {
  const auto bound = entry_of_name_.find(name);
  const auto pending = pendings_.find(name);
  std::int32_t entry = bound != entry_of_name_.end() ? bound->second : -1;
  if (pending != pendings_.end()) entry = pending->second.entry;
  return entry >= 0 && entries_[static_cast<std::size_t>(entry)].last_batch > batches;
}

std::optional<Negotiator::Waiting> Negotiator::waiting_for(const std::string& name) const {
  Waiting waiting;
  const auto pending = pendings_.find(name);
  const auto bound = entry_of_name_.find(name);
  if (pending == pendings_.end() && bound == entry_of_name_.end()) return std::nullopt;
  if (bound != entry_of_name_.end() && entries_[static_cast<std::size_t>(bound->second)].is_ready) {
    return std::nullopt;
  }
  for (std::int32_t rank = 0; rank < ranks_; ++rank) {
    const bool is_ready = pending != pendings_.end() ? includes(pending->second, rank)
                                                     : has_arrived(rank, bound->second);
    if (!is_ready && joined_.has(rank)) continue;
    (is_ready ? waiting.ready : waiting.missing).push_back(rank);
  }
  if (waiting.ready.empty()) return std::nullopt;
  const Pending* const known = pending != pendings_.end() ? &pending->second : nullptr;
  for (const std::int32_t rank : waiting.missing) {
    if (!waiting.steps.empty()) break;
    waiting.steps = who_is_behind(known, known != nullptr ? known->entry : bound->second, rank);
  }
  return waiting;
}

}  // namespace ronde::runtime
