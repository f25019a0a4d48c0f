// SPDX-License-Identifier: Apache-2.0
// The leader's end of the control streams on its host's board: reads what the ranks of the host
// announce, and writes decisions for all of them. Touches the board and its doorbells only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "collectives/board/board.h"
#include "runtime/tensors/joined.h"
#include "runtime/tensors/lateness.h"
#include "runtime/tensors/step_number.h"

namespace ronde::runtime {

// In which steps the ranks of a host are, `ranks` by position, all of which, but for those that
// have joined, have arrived at this entry. Their words are read only if one of them is numbered.
[[nodiscard]] StepSpan steps_of(const collectives::Board& board,
                                std::span<const std::int32_t> ranks, const Joined& joined,
                                std::int32_t entry);

// Likewise, when they have arrived.
[[nodiscard]] ArrivalSpan arrivals_of(const collectives::Board& board,
                                      std::span<const std::int32_t> ranks, const Joined& joined,
                                      std::int32_t entry);

// Thread safety: none; only the leader's agent uses it. Holds a share of the board's memory.
class BoardDesk {
 public:
  explicit BoardDesk(collectives::Board board);

  [[nodiscard]] const collectives::Board& board() const { return board_; }

  // Hands every announcement that has arrived to `take`, with the position of its rank on this
  // host, and returns how many there were. Stops at the first error of `take` and returns it.
  using TakeAnnouncement =
      std::function<base::Status(std::int32_t position, std::span<const std::byte> announcement)>;
  base::Result<int> take_announcements(const TakeAnnouncement& take);
  // The same for every planned entry for which all ranks of this host have arrived.
  using TakeReady = std::function<base::Status(std::int32_t entry)>;
  base::Result<int> take_ready(const TakeReady& take);

  // Queues an encoded decision for all ranks of the host.
  base::Status post(std::span<const std::byte> decision) { return decisions_.post(decision); }
  // Writes what fits on the board, and rings the ranks that must read it. A rank that has left the
  // job no longer holds up the stream.
  base::Status flush();
  // True when everything that was posted lies on the board.
  [[nodiscard]] bool drained() const { return drained_; }

 private:
  void detach_closed();

  collectives::Board board_;
  std::vector<collectives::StreamReader> announcements_;
  collectives::StreamWriter decisions_;
  bool drained_ = true;
};

}  // namespace ronde::runtime
