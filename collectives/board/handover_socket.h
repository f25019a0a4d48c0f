// SPDX-License-Identifier: Apache-2.0
// One end of the Unix socket that a board is handed over with: whole messages with descriptors,
// every wait bounded. Only board/handover.cc uses it, and tests that play the other end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/board/file_descriptor.h"

namespace ronde::collectives {

inline constexpr std::uint32_t kHandoverMagic = 0x52686f76;  // "Rhov"
inline constexpr std::uint32_t kHandoverVersion = 2;
// The kernel takes at most 253 descriptors in one message.
inline constexpr std::size_t kFdsPerMessage = 200;

// kGaveUp: the sender's time is up. It is alive: the end of its connection is not its death.
enum class HandoverKind : std::uint32_t {
  kHello = 1,
  kBoard = 2,
  kEventFds = 3,
  kOk = 4,
  kGaveUp = 5
};

struct HandoverMessage {
  std::uint32_t magic = kHandoverMagic;
  std::uint32_t version = kHandoverVersion;
  HandoverKind kind = HandoverKind::kOk;
  std::uint32_t ranks = 0;  // on the host
  std::uint64_t value = 0;  // kHello: position of the rank; kBoard: bytes; kEventFds: the first
                            // one; kOk, kGaveUp: as kHello
};

struct ReceivedMessage {
  HandoverMessage message;
  std::vector<FileDescriptor> fds;
};

// A socket with the name, in the abstract namespace (no file, gone with its last owner).
base::Result<FileDescriptor> listen_abstract(const std::string& name);
// Waits while the listener's queue is full. Refused at once if nobody listens.
base::Result<FileDescriptor> connect_abstract(const std::string& name, const base::Clock& clock,
                                              base::Instant deadline);

// Whether the process at the other end belongs to the user of this one.
[[nodiscard]] bool same_user(const FileDescriptor& socket);

base::Status send_message(const FileDescriptor& socket, const HandoverMessage& message,
                          const std::vector<int>& fds, const base::Clock& clock,
                          base::Instant deadline);
// kDeadline, kPeerFailed when the other end is closed, kMismatch when it is no message of ours.
base::Result<ReceivedMessage> receive_message(const FileDescriptor& socket,
                                              const base::Clock& clock, base::Instant deadline);

// Milliseconds for poll(): until the deadline, but short enough to look at the clock again.
[[nodiscard]] int poll_timeout(const base::Clock& clock, base::Instant deadline);

}  // namespace ronde::collectives
