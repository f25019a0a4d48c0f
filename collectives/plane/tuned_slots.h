// SPDX-License-Identifier: Apache-2.0
// The slots of a board, and how windows are cut on it, for the data planes that move bytes inside a
// host.
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

// It owns a copy of the board. Thread safety: used by the agent alone.
class TunedSlots {
 public:
  // With `probe`, tune() measures where the configuration leaves the choice open.
  TunedSlots(const Board& board, bool probe) : slots_(board), probe_(probe) {}

  [[nodiscard]] Slots& slots() { return slots_; }
  [[nodiscard]] const SlotTuning& tuning() const { return tuning_; }

  // Does what DataPlane::tune() promises, among the ranks of this host.
  base::Status tune(const base::Config& config, const std::function<base::Status()>& idle);

  // "pieces of at most 65536 bytes, temporal stores, the best of 4 here"
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] std::vector<SlotTuning> candidates(const base::Config& config) const;

  Slots slots_;
  const bool probe_;
  SlotTuning tuning_;
  std::size_t compared_ = 0;  // the number of tunings; with 0 or 1 there was no choice
};

}  // namespace ronde::collectives
