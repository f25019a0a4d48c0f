// SPDX-License-Identifier: Apache-2.0
// The counters of the slots: their arithmetic, the memory order of posts, and which ranks are rung.
#include "collectives/in_host/slots.h"

#include <utility>

#include "base/check.h"
#include "collectives/board/layout.h"

namespace ronde::collectives {

namespace {

// A counter is 3 * filled + done, and done is at most three behind filled: so both follow from it,
// and it grows with either.
std::uint64_t counter_of(std::uint64_t filled, std::uint64_t done) { return 3 * filled + done; }
std::uint64_t filled_of(std::uint64_t counter) { return (counter + 3) / 4; }
std::uint64_t done_of(std::uint64_t counter) { return counter - 3 * filled_of(counter); }

}  // namespace

Slots::Slots(Board board)
    : board_(std::move(board)),
      words_(board_.slot_words()),
      buffers_(board_.slot_buffers()),
      buffer_bytes_(board_.geometry().slot_bytes),
      seen_(static_cast<std::size_t>(board_.ranks())) {}

std::byte* Slots::inline_bytes(std::int32_t rank, std::uint64_t window) const {
  return words_[rank].inline_bytes[window % kSlotBuffers].data();
}

void Slots::want_rings(bool wanted) {
  if (wanted == wants_rings_) return;
  wants_rings_ = wanted;
  words_[rank()].wants_rings.store(wanted ? 1 : 0, std::memory_order_seq_cst);
}

// Both sides are seq_cst: the poster writes its counter and then reads wants_rings; a rank that
// goes to sleep writes wants_rings and then reads the counters. One of the two sees the other.
void Slots::post(std::uint64_t filled, std::uint64_t done) {
  base::check(done <= filled && filled - done <= 3, "windows are filled and done in order");
  filled_ = filled;
  done_ = done;
  words_[rank()].counter.store(counter_of(filled, done), std::memory_order_seq_cst);
  for (std::int32_t other = 0; other < ranks(); ++other) {
    if (words_[other].wants_rings.load(std::memory_order_seq_cst) == 0 || other == rank()) continue;
    board_.doorbell(other).ring();
  }
}

// The load is seq_cst for the look after want_rings(); acquire alone would guard the bytes.
std::uint64_t Slots::look(std::int32_t rank) {
  return seen_[static_cast<std::size_t>(rank)] =
             words_[rank].counter.load(std::memory_order_seq_cst);
}

bool Slots::filled(std::int32_t rank, std::uint64_t window) {
  return filled_of(seen_[static_cast<std::size_t>(rank)]) > window ||
         filled_of(look(rank)) > window;
}

bool Slots::done(std::int32_t rank, std::uint64_t window) {
  return done_of(seen_[static_cast<std::size_t>(rank)]) > window || done_of(look(rank)) > window;
}

bool Slots::all_filled(std::uint64_t window) {
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    if (rank != this->rank() && !filled(rank, window)) return false;
  }
  return true;
}

bool Slots::all_done(std::uint64_t window) {
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    if (rank != this->rank() && !done(rank, window)) return false;
  }
  return true;
}

}  // namespace ronde::collectives
