// SPDX-License-Identifier: Apache-2.0
// The system calls behind the leaders' sockets: addresses for both families, and socket options.
#include "base/wire/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/numbers.h"

namespace ronde::base {

namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress address_of(const Endpoint& endpoint, std::uint32_t index) {
  SocketAddress result;
  if (endpoint.address.family == IpFamily::kV4) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    std::memcpy(&v4.sin_addr, endpoint.address.bytes.data(), sizeof v4.sin_addr);
    std::memcpy(&result.storage, &v4, sizeof v4);
    result.size = sizeof v4;
    return result;
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(endpoint.port);
  std::memcpy(&v6.sin6_addr, endpoint.address.bytes.data(), sizeof v6.sin6_addr);
  if (is_link_local(endpoint.address)) v6.sin6_scope_id = index;
  std::memcpy(&result.storage, &v6, sizeof v6);
  result.size = sizeof v6;
  return result;
}

std::optional<Endpoint> end_of(const FileDescriptor& socket, decltype(::getsockname)& ask) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  return ask(socket.get(), address, &size) == 0 ? endpoint_of(address) : std::nullopt;
}

Result<FileDescriptor> make_socket(IpFamily family) {
  const int domain = family == IpFamily::kV4 ? AF_INET : AF_INET6;
  // Otherwise a leader that dies would seem to live on while a child that it has forked does.
  FileDescriptor socket = FileDescriptor::kept_from_children(
      [&] { return ::socket(domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!socket.valid()) return Status::system("could not create a TCP socket", errno);
  return socket;
}

// An option that cannot be set only makes the connection slower to detect a lost host.
void set_option(const FileDescriptor& socket, int level, int name, int value) {
  (void)::setsockopt(socket.get(), level, name, &value, sizeof value);
}

void configure(const FileDescriptor& socket, const Keepalive& keepalive) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, narrow<int>(keepalive.idle.count()));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, narrow<int>(keepalive.interval.count()));
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, keepalive.count);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, narrow<int>(keepalive.unanswered.count()));
}

}  // namespace

Keepalive Keepalive::of(Nanoseconds silence) {
  // There are many probes, so that the last one comes shortly before the end: a host that is back
  // by then answers it. No part may be zero.
  constexpr std::int64_t kMostProbes = 11;
  const std::int64_t whole =
      std::max<std::int64_t>(std::chrono::ceil<std::chrono::seconds>(silence).count(), 2);
  const std::int64_t probes = std::min(kMostProbes, whole - 1);
  const std::int64_t interval = std::max<std::int64_t>(whole / (kMostProbes + 1), 1);
  return {std::chrono::seconds(whole - probes * interval), std::chrono::seconds(interval),
          narrow<int>(probes), std::chrono::ceil<std::chrono::milliseconds>(silence)};
}

Result<FileDescriptor> listen_on(const Endpoint& endpoint, std::uint32_t index) {
  auto socket = make_socket(endpoint.address.family);
  RONDE_RETURN_IF_ERROR(socket.status());
  if (endpoint.address.family == IpFamily::kV6) {
    set_option(*socket, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  }
  // Connections of an earlier listener that have ended keep a chosen port busy for a minute
  // otherwise.
  set_option(*socket, SOL_SOCKET, SO_REUSEADDR, 1);
  const SocketAddress at = address_of(endpoint, index);
  if (::bind(socket->get(), at.get(), at.size) != 0 || ::listen(socket->get(), SOMAXCONN) != 0) {
    return Status::system("could not listen on " + text_of(endpoint), errno);
  }
  return socket;
}

Result<FileDescriptor> begin_connect(const Endpoint& to, std::uint32_t index,
                                     const Keepalive& keepalive) {
  auto socket = make_socket(to.address.family);
  RONDE_RETURN_IF_ERROR(socket.status());
  configure(*socket, keepalive);
  const SocketAddress address = address_of(to, index);
  // An interrupted connect() continues in the kernel.
  if (::connect(socket->get(), address.get(), address.size) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    return Status::error(Code::kSystem, error_text(errno));
  }
  return socket;
}

int pending_error(const FileDescriptor& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

FileDescriptor accept_next(const FileDescriptor& listener, const Keepalive& keepalive) {
  FileDescriptor socket = FileDescriptor::kept_from_children(
      [&] { return ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
  if (socket.valid()) configure(socket, keepalive);
  return socket;
}

std::optional<Endpoint> own_end(const FileDescriptor& socket) {
  return end_of(socket, ::getsockname);
}

std::optional<Endpoint> other_end(const FileDescriptor& socket) {
  return end_of(socket, ::getpeername);
}

std::string error_text(int error_number) { return std::generic_category().message(error_number); }

}  // namespace ronde::base
