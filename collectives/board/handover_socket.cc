// SPDX-License-Identifier: Apache-2.0
// The system calls of a handover's socket, which never block beyond the deadline.
#include "collectives/board/handover_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/numbers.h"

namespace ronde::collectives {

namespace {

using base::Clock;
using base::Code;
using base::FileDescriptor;
using base::Instant;
using base::Result;
using base::Status;

constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int) * kFdsPerMessage);

Status past_deadline() { return Status::error(Code::kDeadline, "the deadline has passed"); }

// Waits until the socket is ready, for at most a slice of time; fails only at the deadline.
Status wait_ready(const FileDescriptor& socket, short events, const Clock& clock,
                  Instant deadline) {
  if (clock.now() >= deadline) return past_deadline();
  pollfd entry{socket.get(), events, 0};
  if (::poll(&entry, 1, base::poll_milliseconds(clock, deadline)) < 0 && errno != EINTR) {
    return Status::system("could not wait for a Unix socket", errno);
  }
  return {};
}

// Waits a millisecond for an event that no descriptor announces.
void pause_shortly() { ::poll(nullptr, 0, 1); }

// Takes ownership of every descriptor in the control data, so that none leaks whatever else is
// wrong with the message.
std::vector<FileDescriptor> take_fds(msghdr& header) {
  std::vector<FileDescriptor> fds;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

Status send_message(const FileDescriptor& socket, const HandoverMessage& message,
                    const std::vector<int>& fds, const Clock& clock, Instant deadline) {
  base::check(fds.size() <= kFdsPerMessage, "descriptors are sent in batches");
  HandoverMessage copy = message;
  iovec bytes{&copy, sizeof copy};
  alignas(cmsghdr) char control[kControlBytes] = {};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(socket.get(), &header, MSG_NOSIGNAL);
    if (sent >= 0) return {};
    switch (errno) {
      case EINTR:
        break;
      case EAGAIN:
        RONDE_RETURN_IF_ERROR(wait_ready(socket, POLLOUT, clock, deadline));
        break;
      case ETOOMANYREFS:  // the user has too many descriptors in flight; receivers make room
        if (clock.now() >= deadline) return past_deadline();
        pause_shortly();
        break;
      case EPIPE:
      case ECONNRESET:
        return Status::error(Code::kPeerFailed, "the other end of the socket is closed");
      default:
        return Status::system("could not send over a Unix socket", errno);
    }
  }
}

Result<ReceivedMessage> receive_message(const FileDescriptor& socket, const Clock& clock,
                                        Instant deadline) {
  for (;;) {
    ReceivedMessage received;
    iovec bytes{&received.message, sizeof received.message};
    alignas(cmsghdr) char control[kControlBytes] = {};
    msghdr header{};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t size = ::recvmsg(socket.get(), &header, MSG_CMSG_CLOEXEC);
    if (size < 0) {
      if (errno == EINTR) continue;
      if (errno == ECONNRESET) {
        return Status::error(Code::kPeerFailed, "the other end of the socket is closed");
      }
      if (errno != EAGAIN) return Status::system("could not receive over a Unix socket", errno);
      RONDE_RETURN_IF_ERROR(wait_ready(socket, POLLIN, clock, deadline));
      continue;
    }
    received.fds = take_fds(header);
    if (size == 0) {
      return Status::error(Code::kPeerFailed, "the other end of the socket is closed");
    }
    if ((header.msg_flags & MSG_CTRUNC) != 0) {
      return Status::error(Code::kSystem,
                           "not all descriptors arrived: the limit of open files (ulimit -n) is "
                           "too low for this many ranks on a host");
    }
    const HandoverMessage& message = received.message;
    if ((header.msg_flags & MSG_TRUNC) != 0 || size != sizeof(HandoverMessage) ||
        message.magic != kHandoverMagic || message.version != kHandoverVersion) {
      return Status::error(Code::kMismatch, "what arrived is no message of this version of Ronde");
    }
    return received;
  }
}

}  // namespace ronde::collectives
