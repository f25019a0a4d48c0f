// SPDX-License-Identifier: Apache-2.0
// The tensor table: names in flight, the plan's entries as this rank knows them, stall queues.
#include "runtime/tensors/tensor_table.h"

#include <algorithm>
#include <utility>

#include "base/numbers.h"
#include "runtime/tensors/overlap.h"
#include "runtime/tensors/stand_in.h"

namespace ronde::runtime {

using base::Code;
using base::MutexLock;
using base::Result;
using base::Status;

namespace {

// Whether this rank submits what the plan has for it. A tensor that is reduced in place must lie on
// the board; any other may lie anywhere, so that a single rank that moves its tensor onto the board
// does not have to send a full request in every step.
bool matches(const AgreedTensor& agreed, const Signature& mine, std::int32_t rank) {
  if (agreed.signature.on_board && !mine.on_board) return false;
  if (agreed.first_dimensions.empty()) return agree(agreed.signature, mine);
  Signature remembered = agreed.signature;
  remembered.shape[0] = agreed.first_dimensions[static_cast<std::size_t>(rank)];
  return remembered == mine;
}

std::string words_of(const LocalTensor& tensor) {
  return "'" + tensor.name + "'" +
         (tensor.place.empty() ? "" : ", submitted at " + tensor.place + ",");
}

}  // namespace

void SubmissionOrder::append(LocalTensor& tensor) noexcept {
  LocalTensor::Neighbours& mine = tensor.neighbours[notice_];
  mine = {last_, nullptr, true};
  (last_ == nullptr ? first_ : last_->neighbours[notice_].next) = &tensor;
  last_ = &tensor;
}

void SubmissionOrder::remove(LocalTensor& tensor) noexcept {
  LocalTensor::Neighbours& mine = tensor.neighbours[notice_];
  if (!mine.listed) return;
  (mine.previous == nullptr ? first_ : mine.previous->neighbours[notice_].next) = mine.next;
  (mine.next == nullptr ? last_ : mine.next->neighbours[notice_].previous) = mine.previous;
  mine = {};
}

Status TensorTable::occupy(const std::string& name, const LocalTensorPtr& tensor) {
  const auto [position, fresh] = in_flight_.emplace(name, tensor);
  if (fresh) return {};
  const LocalTensor& before = *position->second;
  if (&before == tensor.get()) {
    return Status::error(Code::kDuplicateName,
                         "'" + name + "' is twice in one group: give each tensor its own name");
  }
  return Status::error(Code::kDuplicateName,
                       "'" + name + "' is already in flight on this rank" +
                           (before.name == name ? "" : " in '" + before.name + "'") +
                           (before.place.empty() ? "" : ", submitted at " + before.place) +
                           ": wait for it, or use another name");
}

// Releases every name that this tensor holds, and no other tensor's.
void TensorTable::vacate(const LocalTensor& tensor) {
  const auto leave = [&](const std::string& name) RONDE_REQUIRES(mutex_) {
    const auto found = in_flight_.find(name);
    if (found != in_flight_.end() && found->second.get() == &tensor) in_flight_.erase(found);
  };
  for (const GroupMember& member : tensor.signature.members) leave(member.name);
  leave(tensor.name);
}

// One comparison for each tensor in flight: the check is for debugging.
Status TensorTable::check_apart_from_all(const LocalTensor& tensor) {
  const auto memory_of = [](const LocalTensor& of) {
    return TensorMemory{of.name, of.place, of.signature, of.views};
  };
  for (const auto& [name, other] : in_flight_) {
    // A group is here under the names of its members too.
    if (other.get() == &tensor || other->name != name) continue;
    RONDE_RETURN_IF_ERROR(check_apart(memory_of(*other), memory_of(tensor), rank_, size_));
  }
  return {};
}

LocalTensorPtr TensorTable::find(const std::string& name) {
  const auto found = in_flight_.find(name);
  if (found == in_flight_.end() || found->second->name != name) return nullptr;
  return found->second;
}

Result<Ticket> TensorTable::insert(const LocalTensorPtr& tensor,
                                   const std::function<void()>& prepare) {
  const MutexLock lock(mutex_);
  RONDE_RETURN_IF_ERROR(may_insert(*tensor));
  try {
    return try_insert(tensor, prepare);
  } catch (...) {
    vacate(*tensor);
    throw;
  }
}

Status TensorTable::may_insert(const LocalTensor& tensor) const {
  if (!shut_.ok() || join_ == nullptr) return shut_;
  return Status::error(Code::kInvalidArgument,
                       "'" + tensor.name +
                           "': this rank has joined, and submits nothing until all ranks have: "
                           "wait for the join first");
}

Result<Ticket> TensorTable::try_insert(const LocalTensorPtr& tensor,
                                       const std::function<void()>& prepare) {
  Status occupied = occupy(tensor->name, tensor);
  for (const GroupMember& member : tensor->signature.members) {
    if (occupied.ok()) occupied = occupy(member.name, tensor);
  }
  if (occupied.ok() && check_memory_) occupied = check_apart_from_all(*tensor);
  if (!occupied.ok()) {
    vacate(*tensor);
    return occupied;
  }
  const Ticket ticket = ticket_of(*tensor);
  if (ticket.entry < 0 && prepare) prepare();
  if (tensor->joins) {
    join_ = tensor;
    return ticket;  // it may wait for long, and what the others wait for is reported by them
  }
  if (tensor->has_deadline()) {
    deadlines_.emplace(tensor->due(), tensor.get());
    note_deadlines();
  }
  for (SubmissionOrder& order : order_) order.append(*tensor);
  return ticket;
}

Ticket TensorTable::ticket_of(const LocalTensor& tensor) const {
  const auto known = entry_of_name_.find(tensor.name);
  // A full request alone can say that a tensor is to fail.
  if (known == entry_of_name_.end() || !tensor.not_finite.empty()) return {};
  const Entry& entry = entries_[static_cast<std::size_t>(known->second)];
  if (!matches(entry.tensor, tensor.signature, rank_)) return {};
  return {known->second, entry.generation, entry.habit, entry.expected};
}

void TensorTable::leave_out(std::vector<std::int32_t> joined, std::uint32_t expected) {
  const MutexLock lock(mutex_);
  joined_ = std::move(joined);
  expected_ = expected;
}

LocalTensorPtr TensorTable::end_join() {
  const MutexLock lock(mutex_);
  LocalTensorPtr join = std::exchange(join_, nullptr);
  if (join == nullptr || join->ended) return nullptr;
  erase(*join);
  return join;
}

void TensorTable::shut(const Status& why) {
  const MutexLock lock(mutex_);
  if (shut_.ok()) shut_ = why;
}

bool TensorTable::empty() const {
  const MutexLock lock(mutex_);
  return in_flight_.empty() && stand_ins_ == 0;
}

bool TensorTable::stands_in() const {
  const MutexLock lock(mutex_);
  return stand_ins_ > 0;
}

std::string TensorTable::describe(const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto found = in_flight_.find(name);
  return found == in_flight_.end() ? "'" + name + "'" : words_of(*found->second);
}

std::string TensorTable::describe_oldest() const {
  const MutexLock lock(mutex_);
  const LocalTensor* oldest = nullptr;
  for (const auto& [name, tensor] : in_flight_) {
    if (oldest == nullptr || tensor->submitted < oldest->submitted) oldest = tensor.get();
  }
  return oldest == nullptr ? "" : words_of(*oldest);
}

Status TensorTable::bind(const BindDecision& decision) {
  const MutexLock lock(mutex_);
  if (decision.entry < 0) return Status::error(Code::kInternal, "a negative plan entry was bound");
  const auto index = static_cast<std::size_t>(decision.entry);
  if (index >= entries_.size()) entries_.resize(index + 1);
  while (habits_.size() <= index) habits_.emplace_back();
  Entry& entry = entries_[index];
  // An entry that is bound to another name without an eviction in between gives up the old name.
  if (entry.bound && entry.name != decision.name) entry_of_name_.erase(entry.name);
  if (entry.name != decision.name) habits_[index].forget();
  entry = {true, decision.generation, decision.name, decision.tensor, &habits_[index], expected_};
  entry.tensor.absent = joined_;
  entry_of_name_[decision.name] = decision.entry;
  return {};
}

void TensorTable::evict(std::int32_t index) {
  const MutexLock lock(mutex_);
  if (index < 0 || base::narrow<std::size_t>(index) >= entries_.size()) return;
  Entry& entry = entries_[static_cast<std::size_t>(index)];
  if (!entry.bound) return;
  const auto known = entry_of_name_.find(entry.name);
  if (known != entry_of_name_.end() && known->second == index) entry_of_name_.erase(known);
  entry.bound = false;
}

Result<TensorTable::Claimed> TensorTable::claim(const std::vector<BatchItem>& items) {
  const MutexLock lock(mutex_);
  Claimed claimed;
  claimed.tensors.reserve(items.size());
  for (const BatchItem& item : items) RONDE_RETURN_IF_ERROR(claim(item, claimed));
  if (items.size() == 1 && items.front().entry >= 0) {
    claimed.alone = ++entries_[static_cast<std::size_t>(items.front().entry)].alone;
  }
  return claimed;
}

Status TensorTable::claim(const BatchItem& item, Claimed& claimed) {
  const std::string* name = &item.name;
  const AgreedTensor* agreed = &item.tensor;
  if (item.entry >= 0) {
    const auto index = static_cast<std::size_t>(item.entry);
    if (index >= entries_.size() || !entries_[index].bound) {
      return Status::error(Code::kInternal, "a batch holds plan entry " +
                                                std::to_string(item.entry) +
                                                ", which stands for nothing on this rank");
    }
    name = &entries_[index].name;
    agreed = &entries_[index].tensor;
  }
  LocalTensorPtr tensor = find(*name);
  const auto& absent = agreed->absent;
  if (std::binary_search(absent.begin(), absent.end(), rank_)) {
    tensor = stand_in_for(*name, *agreed, rank_, size_);
    ++stand_ins_;
  } else if (tensor == nullptr || tensor->in_batch) {
    return Status::error(Code::kInternal,
                         "a batch holds '" + *name + "', which does not wait on this rank");
  }
  tensor->in_batch = true;
  if (claimed.tensors.empty()) claimed.agreed = *agreed;
  claimed.tensors.push_back(std::move(tensor));
  return {};
}

LocalTensorPtr TensorTable::remove_waiting(const std::string& name) {
  const MutexLock lock(mutex_);
  LocalTensorPtr tensor = find(name);
  if (tensor == nullptr || tensor->in_batch) return nullptr;
  erase(*tensor);
  return tensor;
}

void TensorTable::remove(const LocalTensor& tensor) {
  const MutexLock lock(mutex_);
  if (tensor.stands_in && stand_ins_ > 0) --stand_ins_;
  erase(tensor);
}

void TensorTable::erase(const LocalTensor& tensor) {
  const LocalTensorPtr found = find(tensor.name);
  if (found.get() != &tensor) return;
  found->ended = true;
  for (SubmissionOrder& order : order_) order.remove(*found);
  if (found->has_deadline()) forget_deadline(*found);
  vacate(tensor);
}

std::vector<LocalTensorPtr> TensorTable::remove_all(bool with_batched) {
  const MutexLock lock(mutex_);
  std::vector<LocalTensorPtr> removed;
  for (const auto& [name, tensor] : in_flight_) {
    if (tensor->name != name) continue;  // a member: the group is listed under the group's name
    if (with_batched || !tensor->in_batch) removed.push_back(tensor);
  }
  for (const LocalTensorPtr& tensor : removed) erase(*tensor);
  if (with_batched) stand_ins_ = 0;
  std::sort(removed.begin(), removed.end(), [](const LocalTensorPtr& a, const LocalTensorPtr& b) {
    return a->submitted < b->submitted;
  });
  return removed;
}

std::vector<LocalTensorPtr> TensorTable::overdue(base::Instant limit, std::size_t notice) {
  const MutexLock lock(mutex_);
  std::vector<LocalTensorPtr> late;
  SubmissionOrder& order = order_[notice];
  while (order.first() != nullptr && order.first()->submitted <= limit) {
    late.push_back(find(order.first()->name));
    order.remove(*order.first());
  }
  return late;
}

void TensorTable::note_deadlines() {
  const base::Instant next = deadlines_.empty() ? base::kNever : deadlines_.begin()->first;
  next_deadline_.store(next.count(), std::memory_order_release);
}

void TensorTable::forget_deadline(const LocalTensor& tensor) {
  const auto [begin, end] = deadlines_.equal_range(tensor.due());
  const auto mine =
      std::find_if(begin, end, [&](const auto& one) { return one.second == &tensor; });
  if (mine != end) deadlines_.erase(mine);
  note_deadlines();
}

std::vector<LocalTensorPtr> TensorTable::past_deadline(base::Instant now) {
  const MutexLock lock(mutex_);
  std::vector<LocalTensorPtr> past;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    past.push_back(find(deadlines_.begin()->second->name));
    deadlines_.erase(deadlines_.begin());
  }
  note_deadlines();
  return past;
}

std::optional<TensorTable::Waiting> TensorTable::waiting(std::size_t most) const {
  const MutexLock lock(mutex_);
  Waiting waiting;
  std::vector<const LocalTensor*> all;
  for (const auto& [name, tensor] : in_flight_) {
    if (tensor->name != name) continue;  // a member: the group is listed under the group's name
    if (tensor->in_batch) return std::nullopt;
    all.push_back(tensor.get());
  }
  std::sort(all.begin(), all.end(), [](const LocalTensor* a, const LocalTensor* b) {
    return std::pair(a->submitted, a->name) < std::pair(b->submitted, b->name);
  });
  for (std::size_t i = 0; i < std::min(most, all.size()); ++i) {
    waiting.oldest.emplace_back(all[i]->name, all[i]->place);
  }
  waiting.more = all.size() - waiting.oldest.size();
  return waiting;
}

base::Instant TensorTable::oldest(std::size_t notice) const {
  const MutexLock lock(mutex_);
  const LocalTensor* first = order_[notice].first();
  return first == nullptr ? base::kNever : first->submitted;
}

}  // namespace ronde::runtime
