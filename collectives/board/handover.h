// SPDX-License-Identifier: Apache-2.0
// The handover of a board to the processes of a host. Memfds and eventfds have no name, so they
// travel over a Unix socket. The leader listens on an abstract socket with a random name; the
// bootstrap tells the others the name; then
//
//   rank                                     leader
//   connects, comes in by the door      ->   (base/wire/door.h)
//   hello {its position}                ->   collects all ranks
//   maps the board, keeps the rest      <-   the memfds of the board and of all arenas, and the
//                                            eventfds of all ranks, in batches
//   gave up (at its own deadline)       ->
//
// Both sides check that the other belongs to the same user: that is what protects the board. The
// secret of the door is the name, which any process of the host can see.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "collectives/board/doorbell.h"
#include "collectives/board/shared_memory.h"

namespace ronde::collectives {

// What every rank of the host owns after the handover.
struct BoardHandover {
  std::shared_ptr<SharedMemory> memory;
  EventFds event_fds;  // by position on the host
  // By position: the leader's to each other rank, another rank's to the leader; the rest are empty.
  // They carry nothing more. The end of one tells that the process at its other end has ended or
  // closed it: children that it forks keep no copy.
  std::vector<base::FileDescriptor> connections;
};

// The leader's side. Thread safety: used by one thread.
class HandoverListener {
 public:
  // Begins to listen, so that the caller may tell the other ranks the name.
  static base::Result<HandoverListener> open();

  // 32 hexadecimal digits.
  [[nodiscard]] const std::string& name() const { return name_; }

  // Waits for the other ranks of the host and gives them the board. `ranks_on_host` has their ranks
  // in the job, for error texts; the leader is the first. Fails with kDeadline or kPeerFailed, and
  // the status carries the rank. That all could use what they were sent is for them to tell.
  base::Result<BoardHandover> hand_over(std::shared_ptr<SharedMemory> memory,
                                        std::span<const int> ranks_on_host,
                                        const base::Clock& clock, base::Instant deadline,
                                        const base::Log& log);

 private:
  HandoverListener(base::FileDescriptor socket, std::string name)
      : socket_(std::move(socket)), name_(std::move(name)) {}

  base::FileDescriptor socket_;
  std::string name_;
};

// The side of the other ranks: connects to the leader's socket and receives the board. `position`
// is the index of this rank in ranks_on_host. Thread safety: blocks the calling thread alone.
base::Result<BoardHandover> receive_board(const std::string& name, std::size_t position,
                                          std::span<const int> ranks_on_host,
                                          const base::Clock& clock, base::Instant deadline);

}  // namespace ronde::collectives
