// SPDX-License-Identifier: Apache-2.0
// The data part of the board. Every rank has three slot buffers and one counter. Collectives work
// in windows, which are numbered over the life of the board, the same on every rank; window w uses
// buffer w % 3 of each rank. A rank posts two things for a window, in this order:
//
//   "filled"   its buffer holds what others need of it in window w
//   "done"     it does not touch any rank's buffers in window w any more
//
// It posts them window by window; "filled" runs ahead of "done" by up to two windows, so that a
// rank has something to do while others fill theirs. Both are in one word, the counter 3 * (windows
// filled) + (windows done), which its rank alone writes and never sets back. One rule makes three
// buffers enough, whatever the collectives do in their windows: a rank fills its buffer in window w
// only when every rank is done with window w - 3 (may_fill).
//
// Up to kInlineBytes of a window can travel beside the counter, in its cache line.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/board/board.h"
#include "collectives/transport/batch_times.h"

namespace ronde::collectives {

// One rank's access to the slots of its board, of which it keeps a copy. It touches the slot words
// and buffers of the board, and the doorbells of ranks that want rings.
//
// Thread safety: one thread at a time (whoever has the agent's role).
class Slots {
 public:
  static constexpr std::size_t kInlineBytes = kSlotInlineBytes;

  explicit Slots(Board board);

  [[nodiscard]] const Board& board() const { return board_; }
  [[nodiscard]] std::int32_t rank() const { return board_.rank(); }
  [[nodiscard]] std::int32_t ranks() const { return board_.ranks(); }

  // The bytes of one buffer; a multiple of 64.
  [[nodiscard]] std::int64_t buffer_bytes() const { return buffer_bytes_; }
  // The buffer of a rank for a window, aligned to 64.
  [[nodiscard]] std::byte* buffer(std::int32_t rank, std::uint64_t window) const {
    return buffers_ +
           (kSlotBuffers * rank + static_cast<std::int64_t>(window % kSlotBuffers)) * buffer_bytes_;
  }
  // The kInlineBytes beside the counter that a rank has for a window.
  [[nodiscard]] std::byte* inline_bytes(std::int32_t rank, std::uint64_t window) const;

  // The first window that no collective has taken. A collective takes its windows when it is made,
  // all ranks the same.
  [[nodiscard]] std::uint64_t next_window() const { return next_window_; }
  void use_windows(std::uint64_t count) { next_window_ += count; }

  // Posts "filled", and "done" for all windows before: so a collective need not post "done" for a
  // window where no rank waits for it.
  void post_filled(std::uint64_t window) { post(window + 1, window); }
  // Posts "filled" while an earlier window of this rank is not done.
  void post_filled_ahead(std::uint64_t window) { post(window + 1, done_); }
  void post_done(std::uint64_t window) { post(std::max(filled_, window + 1), window + 1); }

  [[nodiscard]] bool filled(std::int32_t rank, std::uint64_t window);
  [[nodiscard]] bool done(std::int32_t rank, std::uint64_t window);
  // Tell whether all other ranks have posted it for the window.
  [[nodiscard]] bool all_filled(std::uint64_t window);
  [[nodiscard]] bool all_done(std::uint64_t window);
  [[nodiscard]] bool may_fill(std::uint64_t window) {
    return window < kSlotBuffers || all_done(window - kSlotBuffers);
  }

  // From now on every post of another rank rings this rank's doorbell (true), or none does. Before
  // it sleeps, a rank calls this and then looks at the counters once more: either it sees a late
  // post then, or the post rings.
  void want_rings(bool wanted);

  // How long the phases of the current batch take, measured by the collectives on these slots.
  [[nodiscard]] BatchTimes& times() { return *times_; }

 private:
  void post(std::uint64_t filled, std::uint64_t done);
  std::uint64_t look(std::int32_t rank);

  Board board_;
  SlotWords* words_;  // by rank
  std::byte* buffers_;
  std::int64_t buffer_bytes_;
  std::uint64_t next_window_ = 0;
  bool wants_rings_ = false;
  // The numbers of windows that this rank has posted.
  std::uint64_t filled_ = 0;
  std::uint64_t done_ = 0;
  std::unique_ptr<BatchTimes> times_ = std::make_unique<BatchTimes>();
  std::vector<std::uint64_t> seen_;  // by rank: the counter as it was last read
};

}  // namespace ronde::collectives
