// SPDX-License-Identifier: Apache-2.0
#include "collectives/plane/tuned_slots.h"

#include <algorithm>

#include "collectives/in_host/slot_probe.h"

namespace ronde::collectives {

using base::Status;

Status TunedSlots::tune(const base::Config& config, const std::function<Status()>& idle) {
  // What has been measured on this host holds for a board inside the other one.
  if (const auto known = slots_.board().tuning()) {
    tuning_ = *known;
    return {};
  }
  const std::vector<SlotTuning> open = candidates(config);
  compared_ = open.size();
  RONDE_RETURN_IF_ERROR(probe_tuning(slots_, open, idle));
  tuning_ = slots_.board().tuning().value();
  return {};
}

std::string TunedSlots::text() const {
  const bool temporal = tuning_.store == StoreKind::kTemporal;
  return "pieces of at most " + std::to_string(tuning_.piece_bytes) + " bytes, " +
         (temporal ? "temporal" : "streaming") + " stores" +
         (compared_ > 1 ? ", the best of " + std::to_string(compared_) + " here" : "");
}

// Returns the tunings that the configuration leaves open, or without a probe the first of them.
std::vector<SlotTuning> TunedSlots::candidates(const base::Config& config) const {
  std::vector<SlotTuning> all = tuning_candidates(slots_.ranks(), slots_.buffer_bytes());
  for (SlotTuning& tuning : all) {
    if (config.piece_bytes.value() > 0) tuning.piece_bytes = config.piece_bytes.value();
    if (config.stores == "temporal") tuning.store = StoreKind::kTemporal;
    if (config.stores == "streaming") tuning.store = StoreKind::kStreaming;
  }
  std::vector<SlotTuning> open;
  for (const SlotTuning& tuning : all) {
    if (std::find(open.begin(), open.end(), tuning) == open.end()) open.push_back(tuning);
  }
  if (!probe_ || slots_.ranks() == 1) open.resize(1);
  return open;
}

}  // namespace ronde::collectives
