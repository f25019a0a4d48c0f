// SPDX-License-Identifier: Apache-2.0
// The probe for tunings, which runs when the engines open: which size of pieces, and which kind of
// stores, is faster differs between machines (and every choice gives the same bits).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/in_host/slots.h"

namespace ronde::collectives {

// Returns the tunings worth trying with so many ranks, the preferred one first. Pure.
[[nodiscard]] std::vector<SlotTuning> tuning_candidates(std::int32_t ranks,
                                                        std::int64_t buffer_bytes);

// Returns the index of the tuning to use, given the shortest time of each candidate: another one
// than the first only if it is faster by more than the noise. Pure.
[[nodiscard]] std::size_t best_tuning(std::span<const base::Nanoseconds> times);

// Every rank calls this with the same candidates, before any other collective of these slots. It
// runs a few allreduces for each candidate, on memory of its own. The leader measures and publishes
// its choice on the board, and the call returns when it is published. While it waits for other
// ranks it calls idle(), whose error ends the probe. It takes some ten milliseconds.
// Thread safety: one thread at a time, as for the slots.
base::Status probe_tuning(Slots& slots, std::span<const SlotTuning> candidates,
                          const std::function<base::Status()>& idle);

}  // namespace ronde::collectives
