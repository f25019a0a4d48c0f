// SPDX-License-Identifier: Apache-2.0
// How windows are cut is found out when the engines open: which size of pieces, and which kind of
// stores, is faster differs between machines (and every choice gives the same bits).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/in_host/slots.h"

namespace ronde::collectives {

// The tunings worth trying with so many ranks, the one to prefer first.
[[nodiscard]] std::vector<SlotTuning> tuning_candidates(std::int32_t ranks,
                                                        std::int64_t buffer_bytes);

// Index of the tuning to use, given the shortest time of each candidate: another one than the first
// only if it is better by more than the noise.
[[nodiscard]] std::size_t best_tuning(std::span<const base::Nanoseconds> times);

// Called by every rank with the same candidates, before any other collective of these slots: runs
// allreduces on memory of its own, a few for each candidate. The leader measures and publishes its
// choice on the board; returns when it is published. `idle` is called while others are waited for;
// its error ends the probe. Takes some ten milliseconds.
base::Status probe_tuning(Slots& slots, std::span<const SlotTuning> candidates,
                          const std::function<base::Status()>& idle);

}  // namespace ronde::collectives
