// SPDX-License-Identifier: Apache-2.0
// The doorbell that wakes a rank's agent: a counter and a flag on the board, and an eventfd to
// sleep on. Ringing costs a system call only when the agent sleeps.
//
//   poster                               sleeper
//   rings += 1          (seq_cst)        seen = rings; look at everything; nothing to do:
//   armed == 1?         (seq_cst)        armed = 1           (seq_cst)
//     write(eventfd)                     rings != seen? then look again, else sleep on the eventfd
//
// Each side writes its own word before it reads the other's. All four are seq_cst: with anything
// weaker both can read the old value, and the sleeper misses the ring.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/process/file_descriptor.h"
#include "base/status.h"

namespace ronde::collectives {

// No two ranks' words share a cache line; 128 because the hardware prefetches lines in pairs.
inline constexpr std::size_t kCacheLinePair = 128;

// The words of a doorbell on the board, one set per rank.
struct DoorbellWords {
  alignas(kCacheLinePair) std::atomic<std::uint64_t> rings{0};
  std::atomic<std::uint32_t> armed{0};
};

// The eventfds of all ranks of a board, by rank. Engines in one process share the ownership of one
// list.
using EventFds = std::shared_ptr<const std::vector<base::FileDescriptor>>;

// Makes a non-blocking, close-on-exec eventfd.
base::Result<base::FileDescriptor> make_event_fd();
// Makes one for each rank, for engines that live in one process.
base::Result<EventFds> make_event_fds(int ranks);

// A view of one rank's words and eventfd, valid while its Board lives.
// Thread safety: every function may be called from any thread; ring() from a signal handler too.
// arm(), disarm() and drain() are meant for the one thread that sleeps.
class Doorbell {
 public:
  Doorbell() = default;  // ring() does nothing
  Doorbell(DoorbellWords* words, int event_fd) : words_(words), event_fd_(event_fd) {}

  // Counts a ring, and wakes the agent if it is armed.
  void ring() const;
  // Writes the eventfd whether or not the agent is armed, so that a sleeper looks again.
  void wake() const;
  [[nodiscard]] std::uint64_t rings() const {
    return words_ == nullptr ? 0 : words_->rings.load(std::memory_order_seq_cst);
  }
  void arm() const {
    if (words_ != nullptr) words_->armed.store(1, std::memory_order_seq_cst);
  }
  void disarm() const {
    // The load comes first: mostly the bell is disarmed, and a store would cost the next ring() a
    // cache line.
    if (armed()) words_->armed.store(0, std::memory_order_seq_cst);
  }
  [[nodiscard]] bool armed() const {
    return words_ != nullptr && words_->armed.load(std::memory_order_seq_cst) == 1;
  }
  [[nodiscard]] int event_fd() const { return event_fd_; }
  // Empties the eventfd, without blocking.
  void drain() const;

 private:
  DoorbellWords* words_ = nullptr;
  int event_fd_ = -1;
};

}  // namespace ronde::collectives
