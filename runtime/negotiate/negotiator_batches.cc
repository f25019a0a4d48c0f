// SPDX-License-Identifier: Apache-2.0
// The negotiator's batches: how it tells which tensors may go together, and what becomes of those
// that do.
#include <bit>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/negotiate/negotiator.h"

namespace ronde::runtime {

void Negotiator::push_ready(std::int32_t index, bool planned) {
  Entry& entry = entry_at(index);
  entry.is_ready = true;
  ready_.push(entry.kind, entry.bytes, {index, planned, nullptr});
}

Negotiator::ReadyQueues::Kind Negotiator::kind_of(const AgreedTensor& tensor) {
  const Signature& is = tensor.signature;
  ReadyQueues::Kind kind;
  kind.of_device = on_device(is);
  kind.priority = is.priority;
  if (row(is.operation).fuses) {
    kind.fuses_with = FusionClass{is.operation,
                                  is.dtype,
                                  is.op,
                                  is.root,
                                  std::bit_cast<std::uint64_t>(is.prescale),
                                  std::bit_cast<std::uint64_t>(is.postscale),
                                  is.compression,
                                  is.on_board,
                                  is.weighted,
                                  tensor.absent};
  }
  return kind;
}

std::optional<BatchDecision> Negotiator::next_batch(base::Bytes limit) {
  std::vector<Ready> chosen = ready_.take(limit, devices_held_);
  if (chosen.empty()) return std::nullopt;
  BatchDecision batch;
  batch.sequence = next_sequence_++;
  batch.items.reserve(chosen.size());
  for (Ready& ready : chosen) {
    if (ready.entry < 0) {
      batch.items.push_back(std::move(*ready.by_name));
      continue;
    }
    // The count is reset before any rank knows of the batch, so that the next step's arrivals start
    // from 0.
    if (ready.planned) arrivals_.reset(ready.entry);
    Entry& entry = entry_at(ready.entry);
    entry.is_ready = false;
    entry.last_batch = batch.sequence;
    forget_reports(entry);
    // No rank within reach arrives where all of them have joined.
    if (joined_.any() && std::cmp_equal(joined_here_, reporters_.ranks_here)) {
      entry.here = true;
      entry.reports = 1;
    }
    use_order_.splice(use_order_.end(), use_order_, entry.use);
    batch.items.push_back({ready.entry, {}, {}});
  }
  if (anyone_leaving_ && ready_.empty()) sweep();
  return batch;
}

}  // namespace ronde::runtime
