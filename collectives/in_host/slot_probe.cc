// SPDX-License-Identifier: Apache-2.0
// The candidates, the measurement and the choice of a tuning.
#include "collectives/in_host/slot_probe.h"

#include <algorithm>
#include <array>
#include <utility>

#include "collectives/in_host/allreduce.h"

namespace ronde::collectives {

namespace {

using base::Nanoseconds;
using base::Status;

// The vector is large enough for a pipeline of windows, and small enough to take a fraction of a
// millisecond.
constexpr std::int64_t kProbeElements = (std::int64_t{2} << 20) / 4;
constexpr int kRepetitions = 3;

// A choice other than the first must be faster by this many percent.
constexpr std::int64_t kNoisePercent = 10;

Status run(Collective& collective, const std::function<Status()>& idle) {
  while (true) {
    RONDE_ASSIGN_OR_RETURN(const auto result, collective.step());
    if (result == StepResult::kDone) return {};
    if (result == StepResult::kIdle) RONDE_RETURN_IF_ERROR(idle());
  }
}

// Runs one allreduce of `memory` and returns the time that it took.
base::Result<Nanoseconds> measure(Slots& slots, const SlotTuning& tuning,
                                  std::vector<float>& memory, const std::function<Status()>& idle) {
  base::TensorView view;
  view.dtype = base::DType::kF32;
  view.elements = base::Elements(std::ssize(memory));
  view.output = reinterpret_cast<std::byte*>(memory.data());
  view.input = view.output;
  // The operation is max, since a sum would grow to infinity, where arithmetic may be slower.
  const auto collective =
      in_host_allreduce(slots, fusion::FusedView({view}, 1), {.op = base::ReduceOp::kMax}, tuning);
  const base::SteadyClock clock;
  const base::Instant begin = clock.now();
  RONDE_RETURN_IF_ERROR(run(*collective, idle));
  return clock.now() - begin;
}

}  // namespace

std::vector<SlotTuning> tuning_candidates(std::int32_t ranks, std::int64_t buffer_bytes) {
  const std::int64_t most = buffer_bytes / ranks / 64 * 64;
  std::vector<SlotTuning> candidates;
  for (const StoreKind store : {StoreKind::kTemporal, StoreKind::kStreaming}) {
    // The first one is preferred. On most machines windows of about 128 KiB, which stay in a core's
    // cache, were best: 64 KiB for each of two ranks, 32 KiB for each of four.
    const auto sizes = ranks <= 2 ? std::array<std::int64_t, 4>{64, 32, 128, 256}
                                  : std::array<std::int64_t, 4>{32, 64, 128, 256};
    for (const std::int64_t kibibytes : sizes) {
      const SlotTuning tuning{std::min(kibibytes << 10, most), store};
      if (std::find(candidates.begin(), candidates.end(), tuning) == candidates.end()) {
        candidates.push_back(tuning);
      }
    }
  }
  return candidates;
}

std::size_t best_tuning(std::span<const Nanoseconds> times) {
  const auto best = std::min_element(times.begin(), times.end());
  // The division comes first, since a candidate without a measurement has the largest number.
  if (*best >= times.front() / 100 * (100 - kNoisePercent)) return 0;
  return static_cast<std::size_t>(best - times.begin());
}

Status probe_tuning(Slots& slots, std::span<const SlotTuning> candidates,
                    const std::function<Status()>& idle) {
  std::vector<Nanoseconds> times(candidates.size(), Nanoseconds::max());
  if (candidates.size() > 1 && slots.ranks() > 1) {
    std::vector<float> memory(static_cast<std::size_t>(kProbeElements), 1.0F);
    // Candidates take turns, so that a disturbance does not hit all the runs of one. The first
    // round warms up.
    for (int repetition = 0; repetition <= kRepetitions; ++repetition) {
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        RONDE_ASSIGN_OR_RETURN(const auto time, measure(slots, candidates[i], memory, idle));
        if (repetition > 0) times[i] = std::min(times[i], time);
      }
    }
  }
  if (slots.rank() == 0) slots.board().publish_tuning(candidates[best_tuning(times)]);
  while (!slots.board().tuning()) RONDE_RETURN_IF_ERROR(idle());
  return {};
}

}  // namespace ronde::collectives
