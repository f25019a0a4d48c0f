// SPDX-License-Identifier: Apache-2.0
// The negotiator's batches, that is, which tensors may go together and what becomes of those that
// do, and the steps of their ranks.
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
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

// ---- in which steps the ranks of a tensor are, as far as it is known here ----

StepNumber Negotiator::step_of(const Pending& pending, std::int32_t rank) const {
  const auto& statement = pending.statements[static_cast<std::size_t>(rank)];
  if (statement) return statement->step;
  const auto elsewhere = pending.anonymous_elsewhere.find(rank);
  if (elsewhere != pending.anonymous_elsewhere.end()) return elsewhere->second;
  return pending.entry < 0 ? StepNumber() : arrivals_.step_of(rank, pending.entry);
}

StepSpan Negotiator::steps_of(const Pending& pending) const {
  StepSpan steps = pending.steps;
  for (std::int32_t rank = 0; rank < ranks_; ++rank) {
    // Which ranks of other hosts have arrived is a hint; what is unknown is not compared.
    if (includes(pending, rank)) steps.add(rank, step_of(pending, rank));
  }
  return steps;
}

std::string Negotiator::who_is_behind(const Pending* pending, std::int32_t entry,
                                      std::int32_t late) const {
  // The word of a rank within reach stays as it was in its last step of this tensor.
  StepNumber last = entry < 0 ? StepNumber() : arrivals_.step_of(late, entry);
  const auto leaving = last_steps_.find(late);
  if (!last.exists() && leaving != last_steps_.end()) last = leaving->second;
  for (std::int32_t rank = 0; rank < ranks_; ++rank) {
    if (rank == late || !(pending ? includes(*pending, rank) : has_arrived(rank, entry))) continue;
    const StepNumber waits = pending ? step_of(*pending, rank) : arrivals_.step_of(rank, entry);
    const std::string text = steps_behind(late, last, rank, waits);
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace ronde::runtime
