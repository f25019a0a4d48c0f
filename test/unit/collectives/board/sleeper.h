// SPDX-License-Identifier: Apache-2.0
// The sleeper's side of a doorbell, as a thread plays it that has nothing left to do.
#pragma once

#include <poll.h>

#include <cstdint>

#include "collectives/board/doorbell.h"
#include "test/unit/collectives/boards.h"

namespace ronde::collectives {

inline bool readable(const Doorbell& bell, int timeout_ms = 0) {
  pollfd entry{bell.event_fd(), POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

// Sleeps until the bell rings. False: the wake-up was lost.
inline bool sleep_until_rung(const Doorbell& bell, std::uint64_t seen) {
  bell.arm();
  if (bell.rings() != seen) {
    bell.disarm();
    return true;
  }
  const bool woken = readable(bell, kHangMs);
  bell.drain();
  bell.disarm();
  return woken;
}

}  // namespace ronde::collectives
