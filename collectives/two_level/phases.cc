// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/phases.h"

#include <utility>

#include "base/numbers.h"
#include "collectives/messages/segment_plan.h"

namespace ronde::collectives {

using base::Result;

int TwoLevelPhases::tag_of(std::int64_t block) const {
  static_assert((kBlocks + 1) * kSegmentsInFlight <= kTagsPerCollective, "a block has its tags");
  return first_tag_ + base::narrow<int>(block % (kBlocks + 1) * kSegmentsInFlight);
}

Result<StepResult> TwoLevelPhases::step() {
  RONDE_ASSIGN_OR_RETURN(const auto across, step_across());
  RONDE_ASSIGN_OR_RETURN(const auto in_host, step_in_host());
  if (after_ == count_) return StepResult::kDone;
  return across || in_host ? StepResult::kProgress : StepResult::kIdle;
}

Result<bool> TwoLevelPhases::step_across() {
  bool any = false;
  for (std::int64_t block = after_; block < before_; ++block) {
    std::unique_ptr<Collective>& phase = across_of(block);
    if (phase == nullptr) continue;
    const TimedPhase timed(times_, BatchPhase::kBetweenHosts);
    RONDE_ASSIGN_OR_RETURN(const auto result, phase->step());
    any |= result != StepResult::kIdle;
    if (result == StepResult::kDone) phase.reset();
  }
  return any;
}

Result<bool> TwoLevelPhases::step_in_host() {
  if (after_ == count_) return false;
  const bool begins = in_host_ == nullptr;
  if (begins) {
    RONDE_ASSIGN_OR_RETURN(const auto begun, begin_in_host());
    if (!begun) return false;
  }
  if (in_host_ != nullptr) {
    RONDE_ASSIGN_OR_RETURN(const auto result, in_host_->step());
    if (result != StepResult::kDone) return begins || result != StepResult::kIdle;
  }
  RONDE_RETURN_IF_ERROR(end_in_host());
  return true;
}

// A collective inside the host takes the next windows of the slots when it is made, so it is made
// only when the one before it has finished.
Result<bool> TwoLevelPhases::begin_in_host() {
  const bool sums = next_is_before();
  if (!sums && across_of(after_) != nullptr) return false;
  Phase phase = sums ? before(before_) : after(after_);
  RONDE_RETURN_IF_ERROR(phase.status());
  in_host_ = std::move(*phase);
  return true;
}

base::Status TwoLevelPhases::end_in_host() {
  in_host_.reset();
  if (!next_is_before()) {
    ++after_;
    return {};
  }
  Phase phase = across(before_);
  RONDE_RETURN_IF_ERROR(phase.status());
  across_of(before_) = std::move(*phase);
  ++before_;
  return {};
}

}  // namespace ronde::collectives
