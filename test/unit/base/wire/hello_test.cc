// SPDX-License-Identifier: Apache-2.0
// How a connection begins: what a listener reads and what not, and damaged bytes.
#include "base/wire/hello.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <string>
#include <vector>

#include "test/support/strangers.h"

namespace ronde::base {
namespace {

using Got = HelloReader::Got;
using Bytes = std::vector<std::byte>;

using strangers::bytes_of;

// A connection; its listener knows a secret.
struct Connection {
  Connection() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    near = FileDescriptor(fds[0]);
    far = FileDescriptor(fds[1]);
  }
  void send(std::span<const std::byte> bytes) const {
    ASSERT_EQ(::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }
  Got listen() { return reader.read(near); }

  FileDescriptor near;
  FileDescriptor far;
  Bytes secret = bytes_of("the secret of this test");
  HelloReader reader{Handshake::Role::kListener, secret, Nonce{std::byte{1}}};
};

// A connection on which the secret is proved: what follows is a hello.
struct ProvenConnection : Connection {
  ProvenConnection() {
    HelloReader caller(Handshake::Role::kCaller, secret, Nonce{});
    EXPECT_TRUE(caller.begin(far));
    EXPECT_EQ(listen(), Got::kPart);
    EXPECT_EQ(caller.read(far), Got::kPart);
    EXPECT_EQ(listen(), Got::kProven);
  }
};

TEST(Hello, NothingIsReadOfWhatFollows) {
  ProvenConnection connection;
  Bytes all(4, std::byte{0});
  all[0] = std::byte{5};
  for (const std::byte byte : bytes_of("helloand a frame")) all.push_back(byte);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(connection.listen(), Got::kPart) << i;
    connection.send(std::span(all).subspan(i, 1));
  }
  connection.send(std::span(all).subspan(9));
  EXPECT_EQ(connection.listen(), Got::kHello);
  std::string rest(100, ' ');
  rest.resize(static_cast<std::size_t>(::recv(connection.near.get(), rest.data(), 100, 0)));
  EXPECT_EQ(rest, "and a frame");
  connection.far.reset();
  EXPECT_FALSE(send_hello(connection.near, all));
}

TEST(Hello, OfAnImpossibleLengthIsGarbage) {
  for (const std::uint32_t length : {0U, std::uint32_t{HelloReader::kLongestHello} + 1, ~0U}) {
    ProvenConnection connection;
    connection.send(std::as_bytes(std::span(&length, 1)));
    EXPECT_EQ(connection.listen(), Got::kGarbage) << length;
  }
}

// Whatever arrives, in whatever pieces: nobody is let in without the secret.
TEST(HelloFuzz, DamagedBytesLetNobodyIn) {
  std::mt19937_64 random(20'261'126);
  const Bytes opening = Handshake(Handshake::Role::kCaller, {}, Nonce{}).begin();
  int garbage = 0;
  constexpr int kTries = 2000;
  for (int i = 0; i < kTries; ++i) {
    Connection connection;
    Bytes bytes = opening;
    const std::size_t more = random() % 200;
    for (std::size_t j = 0; j < more; ++j) bytes.push_back(static_cast<std::byte>(random()));
    if (random() % 2 == 0) bytes[random() % bytes.size()] ^= static_cast<std::byte>(random() | 1U);
    bytes.resize(random() % (bytes.size() + 1));
    Got got = Got::kPart;
    for (std::size_t at = 0; at < bytes.size() && got == Got::kPart;) {
      const std::size_t size = std::min<std::size_t>(1 + random() % 64, bytes.size() - at);
      connection.send(std::span(bytes).subspan(at, size));
      at += size;
      got = connection.listen();
    }
    ASSERT_NE(got, Got::kProven);
    ASSERT_NE(got, Got::kHello);
    garbage += got == Got::kGarbage ? 1 : 0;
  }
  EXPECT_GT(garbage, kTries / 100);
}

}  // namespace
}  // namespace ronde::base
