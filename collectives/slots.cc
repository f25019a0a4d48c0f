// SPDX-License-Identifier: Apache-2.0
// The slots of a board: see slots.h.
#include "collectives/slots.h"

#include <utility>

#include "collectives/board_layout.h"

namespace ronde::collectives {

Slots::Slots(Board board)
    : board_(std::move(board)),
      words_(board_.slot_words()),
      buffers_(board_.slot_buffers()),
      buffer_bytes_(board_.geometry().slot_bytes),
      seen_(static_cast<std::size_t>(board_.ranks())) {}

std::byte* Slots::inline_bytes(std::int32_t rank, std::uint64_t window) const {
  return words_[rank].inline_bytes[window & 1].data();
}

void Slots::want_rings(bool wanted) {
  if (wanted == wants_rings_) return;
  wants_rings_ = wanted;
  words_[rank()].wants_rings.store(wanted ? 1 : 0, std::memory_order_seq_cst);
}

// seq_cst on both sides: the poster writes its counter and then reads who wants rings; a rank that
// goes to sleep says so and then reads the counters. One of the two sees the other.
void Slots::post(std::uint64_t value) {
  words_[rank()].counter.store(value, std::memory_order_seq_cst);
  for (std::int32_t other = 0; other < ranks(); ++other) {
    if (words_[other].wants_rings.load(std::memory_order_seq_cst) == 0 || other == rank()) continue;
    board_.doorbell(other).ring();
  }
}

bool Slots::reached(std::int32_t rank, std::uint64_t value) {
  std::uint64_t& seen = seen_[static_cast<std::size_t>(rank)];
  // seq_cst for the look after want_rings(); on its own, acquire is what guards the bytes.
  if (seen < value) seen = words_[rank].counter.load(std::memory_order_seq_cst);
  return seen >= value;
}

bool Slots::all_reached(std::uint64_t value) {
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    if (rank != this->rank() && !reached(rank, value)) return false;
  }
  return true;
}

}  // namespace ronde::collectives
