// SPDX-License-Identifier: Apache-2.0
// The data part of the board. Every rank has three slot buffers and one counter. Collectives work
// in windows, which are numbered over the life of the board, the same on every rank; window w uses
// buffer w % 3 of each rank. A rank says two things of a window, in this order:
//
//   "filled"   what others need of me in window w lies in my buffer
//   "done"     I do not touch anybody's buffers in window w any more
//
// It says them window by window; "filled" runs ahead of "done" by up to two windows, so that a rank
// has something to do while others fill theirs. Both are in one word, the counter
// 3 * (windows filled) + (windows done), which its rank alone writes and never sets back. One rule
// makes three buffers enough, whatever the collectives do in their windows: a rank fills its buffer
// in window w only when every rank is done with window w - 3 (may_fill).
//
// Up to kInlineBytes of a window can travel beside the counter, in its cache line.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/board/board.h"

namespace ronde::collectives {

// One rank's access to the slots of its board.
// Thread safety: one thread at a time (whoever has the agent's role).
class Slots {
 public:
  static constexpr std::size_t kInlineBytes = kSlotInlineBytes;

  explicit Slots(Board board);

  [[nodiscard]] const Board& board() const { return board_; }
  [[nodiscard]] std::int32_t rank() const { return board_.rank(); }
  [[nodiscard]] std::int32_t ranks() const { return board_.ranks(); }

  // Of one buffer; a multiple of 64.
  [[nodiscard]] std::int64_t buffer_bytes() const { return buffer_bytes_; }
  // The buffer of a rank for a window, aligned to 64.
  [[nodiscard]] std::byte* buffer(std::int32_t rank, std::uint64_t window) const {
    return buffers_ +
           (kSlotBuffers * rank + static_cast<std::int64_t>(window % kSlotBuffers)) * buffer_bytes_;
  }
  // The place beside the counter.
  [[nodiscard]] std::byte* inline_bytes(std::int32_t rank, std::uint64_t window) const;

  // The first window that no collective has used. The one that runs takes some; all ranks the same.
  [[nodiscard]] std::uint64_t next_window() const { return next_window_; }
  void use_windows(std::uint64_t count) { next_window_ += count; }

  // Filled, and done with all windows before: "done" may be left out where nobody waits for it.
  void post_filled(std::uint64_t window) { post(window + 1, window); }
  // Filled while an earlier window of this rank is not done.
  void post_filled_ahead(std::uint64_t window) { post(window + 1, done_); }
  void post_done(std::uint64_t window) { post(std::max(filled_, window + 1), window + 1); }

  [[nodiscard]] bool filled(std::int32_t rank, std::uint64_t window);
  [[nodiscard]] bool done(std::int32_t rank, std::uint64_t window);
  // All others, that is: a rank knows of itself.
  [[nodiscard]] bool all_filled(std::uint64_t window);
  [[nodiscard]] bool all_done(std::uint64_t window);
  [[nodiscard]] bool may_fill(std::uint64_t window) {
    return window < kSlotBuffers || all_done(window - kSlotBuffers);
  }

  // From now on every post of another rank rings this rank's doorbell (true), or none does. Before
  // it sleeps a rank asks for rings and then looks once more: one of the two sees a late post.
  void want_rings(bool wanted);

 private:
  void post(std::uint64_t filled, std::uint64_t done);
  std::uint64_t look(std::int32_t rank);

  Board board_;
  SlotWords* words_;  // by rank
  std::byte* buffers_;
  std::int64_t buffer_bytes_;
  std::uint64_t next_window_ = 0;
  bool wants_rings_ = false;
  // What this rank has posted: how many windows.
  std::uint64_t filled_ = 0;
  std::uint64_t done_ = 0;
  std::vector<std::uint64_t> seen_;  // by rank: the counter as it was last read
};

}  // namespace ronde::collectives
