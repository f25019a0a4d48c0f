// SPDX-License-Identifier: Apache-2.0
// Ranks that have joined: what goes on without them, and when all take part again.
#include <algorithm>
#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "runtime/negotiate/negotiator.h"

namespace ronde::runtime {

using base::Code;
using base::Status;

// From here on other ranks are expected at the arrival words, so every entry is closed; what is
// bound anew follows the decision, from which each rank learns it.
void Negotiator::on_join(std::int32_t rank, bool here) {
  if (joined_.has(rank)) return;
  const std::list<std::int32_t> bound = use_order_;
  for (const std::int32_t index : bound) {
    if (!entry_at(index).is_ready) unbind(index);
  }
  name_what_is_ready();
  joined_.add(rank);
  joined_here_ += here ? 1 : 0;
  last_joined_ = rank;
  decisions_.emplace_back(JoinedDecision{rank, false});
  for (auto next = pendings_.begin(); next != pendings_.end();) settle(next++);
  end_joins();
  if (anyone_leaving_) sweep();
}

// Called where something may have been settled. What waits for the answers of other hosts is
// settled first.
void Negotiator::end_joins() {
  if (std::cmp_less(joined_.ranks().size(), ranks_) || !pendings_.empty()) return;
  joined_.clear();
  joined_here_ = 0;
  decisions_.emplace_back(JoinedDecision{last_joined_, true});
}

// A rank that has joined submits no more, so its marks at the words are exact.
std::uint32_t Negotiator::absent_from(const Pending& pending) const {
  std::uint32_t absent = 0;
  for (const std::int32_t rank : joined_.ranks()) absent += includes(pending, rank) ? 0U : 1U;
  return absent;
}

std::vector<Statement> Negotiator::statements_of(const Pending& pending,
                                                 std::vector<std::int32_t>& absent) const {
  std::vector<Statement> statements;
  const Statement* present = nullptr;
  for (std::int32_t rank = 0; rank < ranks_; ++rank) {
    const auto& statement = pending.statements[static_cast<std::size_t>(rank)];
    if (statement) {
      statements.push_back(*statement);
      continue;
    }
    if (joined_.has(rank) && !includes(pending, rank)) {
      absent.push_back(rank);
      statements.emplace_back();
      continue;
    }
    Signature signature = pending.anonymous_tensor.signature;
    const auto& rows = pending.anonymous_tensor.first_dimensions;
    if (!rows.empty()) signature.shape[0] = rows[static_cast<std::size_t>(rank)];
    statements.push_back({std::move(signature), pending.anonymous_place, {}});
  }
  if (absent.empty()) return statements;
  for (std::int32_t rank = 0; rank < ranks_ && present == nullptr; ++rank) {
    const bool is_absent = std::binary_search(absent.begin(), absent.end(), rank);
    if (!is_absent) present = &statements[static_cast<std::size_t>(rank)];
  }
  for (const std::int32_t rank : absent) {
    Statement& same = statements[static_cast<std::size_t>(rank)];
    same = *present;
    same.absent = true;
    if (row(same.signature.operation).makes_result() && !same.signature.shape.empty()) {
      same.signature.shape[0] = 0;
    }
  }
  return statements;
}

Status Negotiator::check_absent(const std::string& name, const AgreedTensor& agreed) {
  const Signature& is = agreed.signature;
  const std::int32_t first = agreed.absent.front();
  if (on_device(is)) {
    return Status::error(Code::kUnsupported,
                         "'" + name + "': rank " + std::to_string(first) +
                             " has joined, and in the memory of devices nothing goes on without "
                             "it: use host memory, or give every rank as many steps");
  }
  if (row(is.operation).has_root &&
      std::binary_search(agreed.absent.begin(), agreed.absent.end(), is.root)) {
    return Status::error(Code::kInvalidArgument,
                         "'" + name + "': rank " + std::to_string(is.root) +
                             ", its root, has joined, and has nothing to give: broadcast from a "
                             "rank that still takes part");
  }
  return {};
}

}  // namespace ronde::runtime
