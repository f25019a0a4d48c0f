// SPDX-License-Identifier: Apache-2.0
// In which steps the ranks of a tensor are, as far as it is known here.
#include <cstdint>
#include <string>

#include "runtime/negotiate/negotiator.h"

namespace ronde::runtime {

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
