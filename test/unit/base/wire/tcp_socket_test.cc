// SPDX-License-Identifier: Apache-2.0
// The leaders' sockets and forked children: a worker that a rank has forked and that
// outlives it does not hide the rank's death from the other hosts.
#include "base/wire/tcp_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "test/support/eventually.h"

namespace ronde::base {
namespace {

constexpr int kSoonMilliseconds = 5000;  // far below any deadline of a link

FileDescriptor listener() {
  auto socket = base::listen_on({base::parse_endpoint("127.0.0.1:1").value().address, 0}, 0);
  EXPECT_TRUE(socket.ok()) << socket.status().message();
  return std::move(*socket);
}

bool readable(const FileDescriptor& socket, int limit_ms) {
  pollfd watched{socket.get(), POLLIN, 0};
  return ::poll(&watched, 1, limit_ms) > 0;
}

FileDescriptor accept_from(const FileDescriptor& listener) {
  EXPECT_TRUE(readable(listener, kSoonMilliseconds));
  FileDescriptor socket = base::accept_next(listener, base::Keepalive{});
  EXPECT_TRUE(socket.valid());
  return socket;
}

FileDescriptor connect_to(const base::Endpoint& address) {
  auto socket = base::begin_connect(address, 0, base::Keepalive{});
  EXPECT_TRUE(socket.ok()) << socket.status().message();
  return std::move(*socket);
}

// Whether the stream has ended, or ends soon.
bool ends(const FileDescriptor& socket) {
  char byte = 0;
  return readable(socket, kSoonMilliseconds) && ::recv(socket.get(), &byte, 1, 0) == 0;
}

// A child that does nothing until it is killed, as a data loader that waits for work.
class Sleeper {
 public:
  Sleeper() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
    EXPECT_GT(pid_, 0);
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  const pid_t pid_;
};

TEST(TcpSocket, R15AForkedChildKeepsNoConnectionOpen) {
  FileDescriptor listening = listener();
  const base::Endpoint address = base::own_end(listening).value();
  FileDescriptor connected = connect_to(address);
  FileDescriptor accepted = accept_from(listening);
  const Sleeper child;
  connected.reset();
  EXPECT_TRUE(ends(accepted)) << "the one that connected";
  connected = connect_to(address);
  accepted = accept_from(listening);
  const Sleeper another;
  accepted.reset();
  EXPECT_TRUE(ends(connected)) << "the one that accepted";
  listening.reset();
  // A child closes its copies a moment after fork() has returned here.
  EXPECT_TRUE(testing::eventually([&] {
    const auto late = base::begin_connect(address, 0, base::Keepalive{});
    if (!late.ok()) return true;
    pollfd watched{late->get(), POLLOUT, 0};
    return ::poll(&watched, 1, kSoonMilliseconds) > 0 && base::pending_error(*late) == ECONNREFUSED;
  })) << "the listener";
}

TEST(TcpSocket, R15ALeaderThatIsKilledIsNoticedThoughItsWorkerLives) {
  const FileDescriptor listening = listener();
  std::array<int, 2> said{};
  ASSERT_EQ(::pipe(said.data()), 0);
  const base::Endpoint address = base::own_end(listening).value();
  const pid_t leader = ::fork();
  ASSERT_GE(leader, 0);
  if (leader == 0) {
    const auto link = base::begin_connect(address, 0, base::Keepalive{});
    const pid_t worker = link.ok() ? ::fork() : -1;
    if (worker != 0) {
      const bool written = ::write(said[1], &worker, sizeof worker) == sizeof worker;
      if (!written || worker < 0) ::_exit(1);
    }
    for (;;) ::pause();
  }
  const FileDescriptor accepted = accept_from(listening);
  pid_t worker = -1;
  ASSERT_EQ(::read(said[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  ASSERT_GT(worker, 0);
  EXPECT_FALSE(readable(accepted, 0));
  ::kill(leader, SIGKILL);
  ::waitpid(leader, nullptr, 0);
  EXPECT_TRUE(ends(accepted));
  EXPECT_EQ(::kill(worker, 0), 0) << "the worker lives";
  ::kill(worker, SIGKILL);
  ::close(said[0]);
  ::close(said[1]);
}

// The number of a closed descriptor may become that of a file which the child opens.
TEST(TcpSocket, R15AForkedChildThatDropsItsCopyClosesNoFileOfItsOwn) {
  const FileDescriptor listening = listener();
  const base::Endpoint address = base::own_end(listening).value();
  FileDescriptor connected = connect_to(address);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::fcntl(connected.get(), F_GETFD) != -1) ::_exit(1);
    const int number = connected.get();
    if (::dup2(STDERR_FILENO, number) != number) ::_exit(2);
    connected.reset();
    if (::fcntl(number, F_GETFD) == -1) ::_exit(3);
    // A connection that the child itself makes is its own.
    FileDescriptor own = connect_to(address);
    if (!own.valid() || ::fcntl(own.get(), F_GETFD) == -1) ::_exit(4);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_NE(::fcntl(connected.get(), F_GETFD), -1) << "the parent's copy is open";
}

}  // namespace
}  // namespace ronde::base
