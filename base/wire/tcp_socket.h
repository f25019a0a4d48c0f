// SPDX-License-Identifier: Apache-2.0
// TCP sockets between hosts: listening, connecting and accepting without blocking.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "base/wire/interfaces.h"

namespace ronde::base {

// When the connection to a host that has vanished (no power, no network) ends, whether or not bytes
// were in flight to it. The end of a process is noticed at once, without this. The connection to a
// stopped process stays as long as its socket has room; it ends once bytes have waited for
// `unanswered`.
struct Keepalive {
  std::chrono::seconds idle{5};                  // silence before the first probe
  std::chrono::seconds interval{5};              // between probes
  int count = 11;                                // probes without an answer
  std::chrono::milliseconds unanswered{60'000};  // how long sent bytes may stay unacknowledged

  // A connection that ends after `silence` (RONDE_LINK_TIMEOUT_SECONDS: at least 2 s), rounded up
  // to whole seconds where the kernel takes no others.
  static Keepalive of(Nanoseconds silence);
};

// Listens on an address; port 0 lets the kernel choose. `index`: the kernel's number of its
// interface. All functions here return at once; any thread may call them, and the caller owns the
// sockets that they return.
Result<FileDescriptor> listen_on(const Endpoint& endpoint, std::uint32_t index);

// Begins to connect. The attempt is finished when the socket can be written; pending_error() then
// returns whether it failed.
Result<FileDescriptor> begin_connect(const Endpoint& to, std::uint32_t index,
                                     const Keepalive& keepalive);
// The errno of what failed on a socket since the last call, or 0.
[[nodiscard]] int pending_error(const FileDescriptor& socket);

// Returns the next connection of a listener; an invalid descriptor, with errno set, when there is
// none.
FileDescriptor accept_next(const FileDescriptor& listener, const Keepalive& keepalive);

// The two ends of a socket. Nothing for a socket without such an end.
[[nodiscard]] std::optional<Endpoint> own_end(const FileDescriptor& socket);
[[nodiscard]] std::optional<Endpoint> other_end(const FileDescriptor& socket);

// "Connection refused".
[[nodiscard]] std::string error_text(int error_number);

}  // namespace ronde::base
