// SPDX-License-Identifier: Apache-2.0
// Unix sockets between the processes of a host, in the abstract namespace: no file, and the name
// goes with its last owner.
//
// Forked children keep no copy of a socket: its end must show as soon as the process has ended.
//
// Thread safety: a socket belongs to one thread at a time; same_user() is a pure read.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "base/wire/door.h"

namespace ronde::base {

// Listens under the name.
Result<FileDescriptor> listen_abstract(const std::string& name);
// Connects, and waits while the listener's queue is full. Fails at once if no socket has the name.
Result<FileDescriptor> connect_abstract(const std::string& name, const Clock& clock,
                                        Instant deadline);

// Takes a connection that waits at the listener, with whose it is.
[[nodiscard]] Accepted accept_member(const FileDescriptor& listener);

// Tells whether the process at the other end belongs to the user of this one.
[[nodiscard]] bool same_user(const FileDescriptor& socket);

}  // namespace ronde::base
