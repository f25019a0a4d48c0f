// SPDX-License-Identifier: Apache-2.0
// The slots of a board, and how windows are cut on it: what every data plane needs that moves bytes
// inside a host.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "collectives/in_host/slots.h"
#include "collectives/kernels/copy.h"

namespace ronde::collectives {

// Thread safety: belongs to the agent.
class TunedSlots {
 public:
  // `probe`: tune() measures, where the configuration leaves the choice open.
  TunedSlots(const Board& board, bool probe) : slots_(board), probe_(probe) {}

  [[nodiscard]] Slots& slots() { return slots_; }
  [[nodiscard]] const SlotTuning& tuning() const { return tuning_; }

  // As DataPlane::tune(), among the ranks of this host.
  base::Status tune(const base::Config& config, const std::function<base::Status()>& idle);

  // "pieces of at most 65536 bytes, temporal stores, the best of 4 here"
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] std::vector<SlotTuning> candidates(const base::Config& config) const;

  Slots slots_;
  const bool probe_;
  SlotTuning tuning_;
  std::size_t compared_ = 0;  // tunings; 0 or 1: there was no choice
};

}  // namespace ronde::collectives
