// SPDX-License-Identifier: Apache-2.0
// The leader's end of the control streams on its host's board: takes in what the ranks of the host
// announce, and gives out decisions to all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "collectives/board/board.h"

namespace ronde::runtime {

// Thread safety: belongs to the leader's agent.
class BoardDesk {
 public:
  explicit BoardDesk(collectives::Board board);

  [[nodiscard]] const collectives::Board& board() const { return board_; }

  // Every announcement that has come, with the position of its rank on this host. An error of
  // `take` ends it and is returned.
  using TakeAnnouncement =
      std::function<base::Status(std::int32_t position, std::span<const std::byte> announcement)>;
  base::Result<int> take_announcements(const TakeAnnouncement& take);
  // Every planned entry for which all ranks of this host have arrived.
  using TakeReady = std::function<base::Status(std::int32_t entry)>;
  base::Result<int> take_ready(const TakeReady& take);

  // Queues an encoded decision for all ranks of the host.
  base::Status post(std::span<const std::byte> decision) { return decisions_.post(decision); }
  // Writes what fits, and rings whoever must read it. Nobody waits for a rank that has left.
  base::Status flush();
  // Everything that was posted lies on the board.
  [[nodiscard]] bool drained() const { return drained_; }

 private:
  void detach_closed();

  collectives::Board board_;
  std::vector<collectives::StreamReader> announcements_;
  collectives::StreamWriter decisions_;
  bool drained_ = true;
};

}  // namespace ronde::runtime
