// SPDX-License-Identifier: Apache-2.0
// The negotiator's choice of batches: which of the tensors that are ready on every rank go
// together.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "fusion/batching.h"
#include "runtime/negotiate/negotiator.h"

namespace ronde::runtime {

namespace {

// Tensors with equal keys may be fused. They fuse only when one pass over memory can serve them:
// the same operation on the same type with the same factors. The number of a device is not
// compared, because each rank has its own. Key 0 fuses with nothing.
std::vector<std::uint64_t> fusion_keys(const std::vector<const AgreedTensor*>& tensors) {
  using Class = std::tuple<Operation, base::DType, base::ReduceOp, std::int32_t, bool,
                           std::uint64_t, std::uint64_t, base::Compression, bool>;
  std::map<Class, std::uint64_t> known;
  std::vector<std::uint64_t> keys;
  keys.reserve(tensors.size());
  for (const AgreedTensor* tensor : tensors) {
    const Signature& is = tensor->signature;
    if (is.operation != Operation::kAllreduce && is.operation != Operation::kBroadcast) {
      keys.push_back(0);
      continue;
    }
    const Class fused_with{is.operation,
                           is.dtype,
                           is.op,
                           is.root,
                           on_device(is),
                           std::bit_cast<std::uint64_t>(is.prescale),
                           std::bit_cast<std::uint64_t>(is.postscale),
                           is.compression,
                           is.on_board};
    keys.push_back(known.emplace(fused_with, known.size() + 1).first->second);
  }
  return keys;
}

}  // namespace

// Returns the indices of those ready tensors that go into the next batch.
std::vector<std::size_t> Negotiator::choose(base::Bytes limit) const {
  if (ready_.size() == 1) return {0};
  std::vector<const AgreedTensor*> tensors;
  tensors.reserve(ready_.size());
  for (const Ready& ready : ready_) tensors.push_back(&ready.tensor);
  const std::vector<std::uint64_t> keys = fusion_keys(tensors);
  std::vector<fusion::Candidate> candidates;
  candidates.reserve(ready_.size());
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    if (!may_go(*tensors[i])) continue;
    candidates.push_back({i, keys[i], payload_of(*tensors[i]), tensors[i]->signature.priority});
  }
  std::vector<std::size_t> chosen = fusion::next_batch(candidates, limit);
  for (std::size_t& index : chosen) index = candidates[index].id;
  return chosen;
}

std::optional<BatchDecision> Negotiator::next_batch(base::Bytes limit) {
  if (!has_ready()) return std::nullopt;
  BatchDecision batch;
  batch.sequence = next_sequence_++;
  std::vector<bool> taken(ready_.size(), false);
  for (const std::size_t i : choose(limit)) {
    Ready& ready = ready_[i];
    taken[i] = true;
    if (ready.entry < 0) {
      batch.items.push_back({-1, std::move(ready.name), std::move(ready.tensor)});
      continue;
    }
    // The count is reset before any rank knows of the batch, so that the next step's arrivals start
    // from 0.
    if (ready.planned) arrivals_.reset(ready.entry);
    Entry& entry = entry_at(ready.entry);
    entry.is_ready = false;
    entry.last_batch = batch.sequence;
    forget_reports(entry);
    use_order_.splice(use_order_.end(), use_order_, entry.use);
    batch.items.push_back({ready.entry, {}, {}});
  }
  std::vector<Ready> left;
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    if (!taken[i]) left.push_back(std::move(ready_[i]));
  }
  ready_ = std::move(left);
  if (anyone_leaving_ && ready_.empty()) sweep();
  return batch;
}

}  // namespace ronde::runtime
