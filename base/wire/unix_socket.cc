// SPDX-License-Identifier: Apache-2.0
// The system calls of Unix sockets.
#include "base/wire/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace ronde::base {

namespace {

constexpr int kBacklog = 512;

struct Address {
  sockaddr_un address{};
  socklen_t size = 0;
};

// In the abstract namespace the first byte of the path is 0, and the size of the address ends the
// name.
Address abstract_address(const std::string& name) {
  Address result;
  const std::string path = "ronde-" + name;
  result.address.sun_family = AF_UNIX;
  check(path.size() < sizeof(result.address.sun_path), "a socket name fits");
  std::memcpy(result.address.sun_path + 1, path.data(), path.size());
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  return result;
}

// Without pidfds the end of a connection is how a death is noticed, which a child's copy would
// hide.
Result<FileDescriptor> make_socket() {
  FileDescriptor fd = FileDescriptor::kept_from_children(
      [] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!fd.valid()) return Status::system("could not create a Unix socket", errno);
  return fd;
}

// The process at the other end; nobody's (uid -1) if the kernel does not tell.
ucred peer_of(const FileDescriptor& socket) {
  ucred peer{0, ~uid_t{0}, ~gid_t{0}};
  socklen_t size = sizeof peer;
  static_cast<void>(::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size));
  return peer;
}

}  // namespace

Result<FileDescriptor> listen_abstract(const std::string& name) {
  auto socket = make_socket();
  if (!socket.ok()) return socket.status();
  const Address at = abstract_address(name);
  if (::bind(socket->get(), reinterpret_cast<const sockaddr*>(&at.address), at.size) != 0) {
    return Status::system("could not bind a Unix socket", errno);
  }
  if (::listen(socket->get(), kBacklog) != 0) {
    return Status::system("could not listen on a Unix socket", errno);
  }
  return socket;
}

Result<FileDescriptor> connect_abstract(const std::string& name, const Clock& clock,
                                        Instant deadline) {
  auto socket = make_socket();
  if (!socket.ok()) return socket.status();
  const Address to = abstract_address(name);
  while (::connect(socket->get(), reinterpret_cast<const sockaddr*>(&to.address), to.size) != 0) {
    if (errno != EAGAIN && errno != EINTR) {
      return Status::system("could not connect to the Unix socket", errno);
    }
    if (clock.now() >= deadline) {
      return Status::error(Code::kDeadline, "the deadline has passed");
    }
    ::poll(nullptr, 0, 1);  // the queue is full, and no descriptor announces that it has room
  }
  return socket;
}

Accepted accept_member(const FileDescriptor& listener) {
  Accepted accepted;
  accepted.socket = FileDescriptor::kept_from_children([&listener] {
    return ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  });
  if (!accepted.socket.valid()) return accepted;
  const ucred peer = peer_of(accepted.socket);
  accepted.from = "process " + std::to_string(peer.pid) + " of user " + std::to_string(peer.uid);
  accepted.of_another_user = peer.uid != ::geteuid();
  return accepted;
}

bool same_user(const FileDescriptor& socket) { return peer_of(socket).uid == ::geteuid(); }

}  // namespace ronde::base
