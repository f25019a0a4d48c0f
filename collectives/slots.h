// SPDX-License-Identifier: Apache-2.0
// The data part of the board. Every rank has two slot buffers and one counter. Collectives work in
// windows, which are numbered over the life of the board, the same on every rank; window w uses
// buffer w % 2 of each rank:
//
//   counter of a rank   2w + 1   "filled": what others need of me in window w lies in my buffer
//                       2w + 2   "done":   I do not touch anybody's buffers in window w any more
//
// A rank writes its counter alone and never sets it back. One rule makes two buffers enough,
// whatever the collectives do in their windows: a rank fills its buffer in window w only when every
// rank is done with window w - 2 (may_fill). "Done" may be left out where nobody waits for it in
// this window: the next window's "filled" is larger.
//
// Up to kInlineBytes of a window can travel beside the counter, in its cache line.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/board.h"

namespace ronde::collectives {

// One rank's access to the slots of its board.
// Thread safety: one thread at a time (whoever has the agent's role).
class Slots {
 public:
  static constexpr std::size_t kInlineBytes = 24;

  explicit Slots(Board board);

  [[nodiscard]] const Board& board() const { return board_; }
  [[nodiscard]] std::int32_t rank() const { return board_.rank(); }
  [[nodiscard]] std::int32_t ranks() const { return board_.ranks(); }

  // Of one buffer; a multiple of 64.
  [[nodiscard]] std::int64_t buffer_bytes() const { return buffer_bytes_; }
  // The buffer of a rank for a window, aligned to 64.
  [[nodiscard]] std::byte* buffer(std::int32_t rank, std::uint64_t window) const {
    return buffers_ + (2 * rank + static_cast<std::int64_t>(window & 1)) * buffer_bytes_;
  }
  // The place beside the counter.
  [[nodiscard]] std::byte* inline_bytes(std::int32_t rank, std::uint64_t window) const;

  // The first window that no collective has used. The one that runs takes some; all ranks the same.
  [[nodiscard]] std::uint64_t next_window() const { return next_window_; }
  void use_windows(std::uint64_t count) { next_window_ += count; }

  void post_filled(std::uint64_t window) { post(2 * window + 1); }
  void post_done(std::uint64_t window) { post(2 * window + 2); }

  [[nodiscard]] bool filled(std::int32_t rank, std::uint64_t window) {
    return reached(rank, 2 * window + 1);
  }
  [[nodiscard]] bool done(std::int32_t rank, std::uint64_t window) {
    return reached(rank, 2 * window + 2);
  }
  [[nodiscard]] bool all_filled(std::uint64_t window) { return all_reached(2 * window + 1); }
  [[nodiscard]] bool all_done(std::uint64_t window) { return all_reached(2 * window + 2); }
  [[nodiscard]] bool may_fill(std::uint64_t window) { return window < 2 || all_done(window - 2); }

  // From now on every post of another rank rings this rank's doorbell (true), or none does. Before
  // it sleeps a rank asks for rings and then looks once more: one of the two sees a late post.
  void want_rings(bool wanted);

 private:
  void post(std::uint64_t value);
  [[nodiscard]] bool reached(std::int32_t rank, std::uint64_t value);
  [[nodiscard]] bool all_reached(std::uint64_t value);

  Board board_;
  SlotWords* words_;  // by rank
  std::byte* buffers_;
  std::int64_t buffer_bytes_;
  std::uint64_t next_window_ = 0;
  bool wants_rings_ = false;
  std::vector<std::uint64_t> seen_;  // by rank: the counter as it was last read
};

}  // namespace ronde::collectives
