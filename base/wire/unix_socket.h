// SPDX-License-Identifier: Apache-2.0
// Unix sockets between the processes of a host, in the abstract namespace: no file, and the name
// goes with its last owner.
//
// Forked children keep no copy of a socket: its end must show as soon as the process has ended.
//
// Thread safety: a socket belongs to one thread at a time; same_user() is a pure read.
#pragma once

#include <sys/socket.h>

#include <string>

#include "base/clock.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"

namespace ronde::base {

// Listens under the name.
// `type`: SOCK_SEQPACKET for messages, SOCK_STREAM for a stream.
Result<FileDescriptor> listen_abstract(const std::string& name, int type = SOCK_SEQPACKET);
// Connects, and waits while the listener's queue is full. Fails at once if no socket has the name.
Result<FileDescriptor> connect_abstract(const std::string& name, const Clock& clock,
                                        Instant deadline, int type = SOCK_SEQPACKET);

// Takes a connection that waits at the listener; not valid, with errno, if there is none.
[[nodiscard]] FileDescriptor accept_member(const FileDescriptor& listener);

// Tells whether the process at the other end belongs to the user of this one.
[[nodiscard]] bool same_user(const FileDescriptor& socket);

}  // namespace ronde::base
