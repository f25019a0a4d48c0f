// SPDX-License-Identifier: Apache-2.0
// TCP sockets between the leaders of hosts: listening, connecting and accepting without blocking.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "collectives/board/file_descriptor.h"
#include "runtime/links/interfaces.h"

namespace ronde::runtime {

// When a host that has vanished (no power, no network) is given up: after about ten seconds,
// whether or not anything was on its way to it. A process that ends is noticed at once, without
// this. A process that is stopped is alive as long as its socket has room: one that has not read
// for so long that the writer's bytes wait for `unanswered` is given up too.
struct Keepalive {
  std::chrono::seconds idle{5};         // silence before the first probe
  std::chrono::seconds interval{2};     // between probes
  int count = 3;                        // probes without an answer
  std::chrono::seconds unanswered{10};  // of bytes that were sent
};

// Listens on an address; port 0 lets the kernel choose. `index`: of its interface.
base::Result<collectives::FileDescriptor> listen_on(const Endpoint& endpoint, std::uint32_t index);

// Begins to connect; done when the socket can be written: ask pending_error() then.
base::Result<collectives::FileDescriptor> begin_connect(const Endpoint& to, std::uint32_t index,
                                                        const Keepalive& keepalive);
// The errno of what has failed on a socket since the last call, or 0.
[[nodiscard]] int pending_error(const collectives::FileDescriptor& socket);

// The next connection of a listener. Invalid, with errno, when there is none.
collectives::FileDescriptor accept_next(const collectives::FileDescriptor& listener,
                                        const Keepalive& keepalive);

// The two ends of a socket. Nothing for a socket without such an end.
[[nodiscard]] std::optional<Endpoint> own_end(const collectives::FileDescriptor& socket);
[[nodiscard]] std::optional<Endpoint> other_end(const collectives::FileDescriptor& socket);

// "Connection refused".
[[nodiscard]] std::string error_text(int error_number);

}  // namespace ronde::runtime
