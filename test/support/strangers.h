// SPDX-License-Identifier: Apache-2.0
// Whoever comes to a door of a job in a test, who keeps one there, and what the log says of it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/wire/door.h"
#include "base/wire/hello.h"
#include "base/wire/interfaces.h"
#include "test/support/eventually.h"

namespace ronde::strangers {

// The lines of a log, from any thread.
class LogLines {
 public:
  base::Log log(base::LogLevel level) {
    return base::Log(level, -1, [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      text_ += line;
    });
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline void say(const base::FileDescriptor& socket, std::span<const std::byte> bytes) {
  (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// From here on the socket blocks, for ten seconds at most.
inline void let_block(const base::FileDescriptor& socket) {
  const timeval limit{10, 0};
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  (void)::fcntl(socket.get(), F_SETFL, 0);
}

// A connection to this machine's listener at that port, which has said this; invalid, with errno
// set, where nobody listens.
inline base::FileDescriptor knock(const base::Endpoint& to, std::span<const std::byte> says = {}) {
  base::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(to.port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) return {};
  let_block(socket);
  if (!says.empty()) say(socket, says);
  return socket;
}

inline std::vector<std::byte> hear(const base::FileDescriptor& socket, std::size_t size) {
  std::vector<std::byte> bytes(size);
  const ssize_t got = ::recv(socket.get(), bytes.data(), size, MSG_WAITALL);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

// Whether the other end closes a connection within ten seconds, whatever it says before.
inline bool is_closed_soon(const base::FileDescriptor& socket) {
  errno = 0;
  while (!hear(socket, 1).empty()) continue;
  return errno != EAGAIN;
}

// Proves over a connection that it knows this secret, as a caller does, and says this hello;
// `meanwhile` runs between its steps. What the other end has answered to the proof.
inline base::HelloReader::Got introduce(const base::FileDescriptor& socket,
                                        std::span<const std::byte> secret,
                                        std::span<const std::byte> hello,
                                        const std::function<void()>& meanwhile = {}) {
  using Got = base::HelloReader::Got;
  base::HelloReader reader(base::Handshake::Role::kCaller, secret, base::Nonce{});
  Got got = reader.begin(socket) ? Got::kPart : Got::kEnd;
  EXPECT_TRUE(ronde::testing::eventually([&] {
    if (meanwhile) meanwhile();
    if (got == Got::kPart) got = reader.read(socket);
    return got != Got::kPart;
  }));
  if (got == Got::kProven && !base::send_hello(socket, hello)) return Got::kEnd;
  return got;
}

// One step of a door, which waits for a moment.
inline void step(base::Door& door, base::Instant now, std::vector<base::Guest>& guests) {
  std::vector<pollfd> entries;
  door.watch(entries);
  (void)::poll(entries.data(), entries.size(), 1);
  EXPECT_TRUE(door.step(entries, now, guests).ok());
}

// Keeps a door until `over(guests)`.
inline void keep_door(base::DoorPlan plan,
                      const std::function<bool(std::vector<base::Guest>&)>& over) {
  base::Door door(std::move(plan));
  std::vector<base::Guest> guests;
  EXPECT_TRUE(ronde::testing::eventually([&] {
    step(door, base::SteadyClock().now(), guests);
    return over(guests);
  }));
}

}  // namespace ronde::strangers
