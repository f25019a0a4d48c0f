// SPDX-License-Identifier: Apache-2.0
// What is in flight on this rank: see tensor_table.h.
#include "runtime/tensor_table.h"

#include <algorithm>

#include "base/numbers.h"

namespace ronde::runtime {

using base::Code;
using base::MutexLock;
using base::Result;
using base::Status;

namespace {

// Whether this rank says what the plan remembers of it.
bool matches(const AgreedTensor& agreed, const Signature& mine, std::int32_t rank) {
  if (agreed.first_dimensions.empty()) return agreed.signature == mine;
  Signature remembered = agreed.signature;
  remembered.shape[0] = agreed.first_dimensions[static_cast<std::size_t>(rank)];
  return remembered == mine;
}

}  // namespace

Result<Ticket> TensorTable::insert(const LocalTensorPtr& tensor) {
  const MutexLock lock(mutex_);
  if (!shut_.ok()) return shut_;
  const auto [position, fresh] = in_flight_.emplace(tensor->name, tensor);
  if (!fresh) {
    const std::string& before = position->second->place;
    return Status::error(Code::kDuplicateName,
                         "'" + tensor->name + "' is already in flight on this rank" +
                             (before.empty() ? "" : ", submitted at " + before) +
                             ": wait for it, or use another name");
  }
  for (auto& order : order_) order.push_back(tensor);
  const auto known = entry_of_name_.find(tensor->name);
  if (known == entry_of_name_.end()) return Ticket{};
  const Entry& entry = entries_[static_cast<std::size_t>(known->second)];
  if (!matches(entry.tensor, tensor->signature, rank_)) return Ticket{};
  tensor->arrived_at = known->second;
  return Ticket{known->second, entry.generation};
}

void TensorTable::shut(const Status& why) {
  const MutexLock lock(mutex_);
  if (shut_.ok()) shut_ = why;
}

bool TensorTable::empty() const {
  const MutexLock lock(mutex_);
  return in_flight_.empty();
}

Status TensorTable::bind(const BindDecision& decision) {
  const MutexLock lock(mutex_);
  if (decision.entry < 0) return Status::error(Code::kInternal, "a negative plan entry was bound");
  const auto index = static_cast<std::size_t>(decision.entry);
  if (index >= entries_.size()) entries_.resize(index + 1);
  Entry& entry = entries_[index];
  // An entry that moved on to another name without an eviction in between leaves the old name.
  if (entry.bound && entry.name != decision.name) entry_of_name_.erase(entry.name);
  entry = {true, decision.generation, decision.name, decision.tensor};
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

Result<TensorTable::Claimed> TensorTable::claim(const BatchItem& item) {
  const MutexLock lock(mutex_);
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
  const auto found = in_flight_.find(*name);
  if (found == in_flight_.end() || found->second->in_batch) {
    return Status::error(Code::kInternal,
                         "a batch holds '" + *name + "', which does not wait on this rank");
  }
  found->second->in_batch = true;
  return Claimed{found->second, *agreed};
}

LocalTensorPtr TensorTable::remove_waiting(const std::string& name) {
  const MutexLock lock(mutex_);
  const auto found = in_flight_.find(name);
  if (found == in_flight_.end() || found->second->in_batch) return nullptr;
  LocalTensorPtr tensor = found->second;
  erase(*tensor);
  return tensor;
}

void TensorTable::remove(const LocalTensor& tensor) {
  const MutexLock lock(mutex_);
  erase(tensor);
}

void TensorTable::erase(const LocalTensor& tensor) {
  const auto found = in_flight_.find(tensor.name);
  if (found == in_flight_.end() || found->second.get() != &tensor) return;
  found->second->ended = true;
  in_flight_.erase(found);
  for (std::size_t stage = 0; stage < 2; ++stage) drop_ended(stage);
}

void TensorTable::drop_ended(std::size_t stage) {
  auto& order = order_[stage];
  while (!order.empty() && order.front()->ended) order.pop_front();
}

std::vector<LocalTensorPtr> TensorTable::remove_all(bool with_batched) {
  const MutexLock lock(mutex_);
  std::vector<LocalTensorPtr> removed;
  for (const auto& [name, tensor] : in_flight_) {
    if (with_batched || !tensor->in_batch) removed.push_back(tensor);
  }
  for (const LocalTensorPtr& tensor : removed) erase(*tensor);
  std::sort(removed.begin(), removed.end(), [](const LocalTensorPtr& a, const LocalTensorPtr& b) {
    return a->submitted < b->submitted;
  });
  return removed;
}

std::vector<LocalTensorPtr> TensorTable::overdue(base::Instant limit, std::size_t stage) {
  const MutexLock lock(mutex_);
  std::vector<LocalTensorPtr> late;
  auto& order = order_[stage];
  for (drop_ended(stage); !order.empty() && order.front()->submitted <= limit; drop_ended(stage)) {
    late.push_back(order.front());
    order.pop_front();
  }
  return late;
}

base::Instant TensorTable::oldest(std::size_t stage) {
  const MutexLock lock(mutex_);
  drop_ended(stage);
  return order_[stage].empty() ? base::kNever : order_[stage].front()->submitted;
}

}  // namespace ronde::runtime
