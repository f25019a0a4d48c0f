// SPDX-License-Identifier: Apache-2.0
// The Unix socket that a board is handed over with: whole messages with descriptors, every wait
// bounded. board/handover.cc uses it, tests that play the other end, and, for its first functions,
// the meeting of ranks on one host.
//
// Forked children keep no copy of a socket: its end must show as soon as the process has ended.
//
// Thread safety: a socket belongs to one thread at a time; same_user() is a pure read.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"

namespace ronde::collectives {

inline constexpr std::uint32_t kHandoverMagic = 0x52686f76;  // "Rhov"
inline constexpr std::uint32_t kHandoverVersion = 2;
// The kernel takes at most 253 descriptors in one message.
inline constexpr std::size_t kFdsPerMessage = 200;

// kGaveUp tells that the sender's deadline has passed. The sender lives: that its connection ends
// does not mean that it died.
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
  std::uint64_t value = 0;  // kHello, kOk, kGaveUp: position of the rank; kBoard: bytes; kEventFds:
                            // position of the first one
};

struct ReceivedMessage {
  HandoverMessage message;
  std::vector<base::FileDescriptor> fds;
};

// The caller keeps its descriptors: the kernel makes duplicates for the receiver. Fails with
// kDeadline, or with kPeerFailed when the other end is closed.
base::Status send_message(const base::FileDescriptor& socket, const HandoverMessage& message,
                          const std::vector<int>& fds, const base::Clock& clock,
                          base::Instant deadline);
// Fails with kDeadline, with kPeerFailed when the other end is closed, and with kMismatch when what
// arrived is no HandoverMessage of this version.
base::Result<ReceivedMessage> receive_message(const base::FileDescriptor& socket,
                                              const base::Clock& clock, base::Instant deadline);

}  // namespace ronde::collectives
