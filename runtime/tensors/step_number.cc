// SPDX-License-Identifier: Apache-2.0
// Spans of step numbers, and the texts about them.
#include "runtime/tensors/step_number.h"

namespace ronde::runtime {

namespace {

std::string rank_text(std::int32_t rank) { return "rank " + std::to_string(rank); }

// "1st", "2nd", "10th"
std::string ordinal(std::int64_t number) {
  const bool teen = number / 10 % 10 == 1;
  const std::int64_t last = number % 10;
  const char* const end = teen || last == 0 || last > 3 ? "th"
                          : last == 1                   ? "st"
                          : last == 2                   ? "nd"
                                                        : "rd";
  return std::to_string(number) + end;
}

}  // namespace

void StepSpan::add(std::int32_t rank, StepNumber step) {
  if (!step.must_agree()) step = {};
  if (low.rank < 0 || step.word() < low.step.word()) low = {step, rank};
  if (high.rank < 0 || step.word() > high.step.word()) high = {step, rank};
}

void StepSpan::add(const StepSpan& other) {
  if (other.low.rank >= 0) add(other.low.rank, other.low.step);
  if (other.high.rank >= 0) add(other.high.rank, other.high.step);
}

std::string steps_differ(const std::string& name, const StepSpan& steps) {
  const std::string of_low = steps.low.step.exists()
                                 ? " is in step " + std::to_string(steps.low.step.number())
                                 : " gives its step no number";
  return "'" + name + "': the ranks are in different steps: " + rank_text(steps.low.rank) + of_low +
         ", " + rank_text(steps.high.rank) + " is in step " +
         std::to_string(steps.high.step.number()) +
         (steps.low.step.exists() ? ": " + rank_text(steps.high.rank) + " has left one out" : "") +
         ". Have every rank take every step";
}

std::string steps_behind(std::int32_t behind, StepNumber last, std::int32_t waiting,
                         StepNumber waits) {
  if (!last.exists() || !waits.exists() || last.must_agree() != waits.must_agree() ||
      last.number() >= waits.number()) {
    return "";
  }
  if (last.must_agree()) {
    return rank_text(behind) + " was last in step " + std::to_string(last.number()) + ", " +
           rank_text(waiting) + " is in step " + std::to_string(waits.number());
  }
  return rank_text(behind) + " has taken " + std::to_string(last.number()) +
         (last.number() == 1 ? " step, " : " steps, ") + rank_text(waiting) + " is in its " +
         ordinal(waits.number());
}

}  // namespace ronde::runtime
