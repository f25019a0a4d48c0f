// SPDX-License-Identifier: Apache-2.0
// The sockets of a meeting point: where rank 0 listens, and how the others reach it. On one host
// that is a Unix socket in the abstract namespace, whose name holds the user and the port, so it
// leaves no file; credentials are checked at both ends. Over hosts it is TCP.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "base/wire/door.h"
#include "base/wire/interfaces.h"
#include "base/wire/tcp_socket.h"
#include "runtime/meet/secret.h"
#include "runtime/start/point.h"

namespace ronde::runtime {

// Where rank 0 listens. Nothing listens any more once it is destroyed. No function blocks.
//
// Thread safety: none; one thread uses it.
class MeetingListener {
 public:
  // Listens on this host's Unix socket, on the address that `point` gives, or, where it gives a
  // name, on the addresses that `interfaces` (RONDE_INTERFACE) selects, or on all: a name may be
  // that of a service in front of this host. An error is one line that says what to do.
  static base::Result<MeetingListener> open(const MeetingPoint& point,
                                            const std::string& interfaces,
                                            const base::Keepalive& keepalive);

  [[nodiscard]] const std::vector<base::FileDescriptor>& sockets() const { return sockets_; }
  // The next connection of one of the sockets.
  [[nodiscard]] base::Accepted accept(const base::FileDescriptor& socket) const;

 private:
  MeetingListener() = default;

  std::vector<base::FileDescriptor> sockets_;
  bool unix_ = false;
  base::Keepalive keepalive_;
};

// Rank 0's door there; the listener outlives it.
[[nodiscard]] base::DoorPlan door_of(const MeetingListener& listener, const MeetingPoint& point,
                                     const MeetingSecret& secret, std::int32_t ranks);

// Connects to rank 0's Unix socket and checks that it is this user's. Blocks only while the queue
// of that socket is full, until the deadline at most.
base::Result<base::FileDescriptor> connect_on_host(const MeetingPoint& point,
                                                   const base::Clock& clock,
                                                   base::Instant deadline);

// The addresses of a meeting point over hosts. Looks names up, which blocks, until the deadline at
// most.
base::Result<std::vector<base::Endpoint>> addresses_of(const MeetingPoint& point,
                                                       const base::Clock& clock,
                                                       base::Instant deadline);

}  // namespace ronde::runtime
