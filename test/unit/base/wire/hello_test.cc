// SPDX-License-Identifier: Apache-2.0
// How a connection begins: whom a listener lets in, what it reads and what not, and damaged bytes.
#include "base/wire/hello.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ronde::base {
namespace {

using Got = HelloReader::Got;
using Bytes = std::vector<std::byte>;

Bytes of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

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
  Bytes secret = of_text("the secret of this test");
  HelloReader reader{Handshake::Role::kListener, secret, Nonce{std::byte{1}}};
};

// What a caller with this secret is told, and what the listener has concluded.
std::pair<Got, Got> shake(Connection& connection, const Bytes& secret, std::string_view hello) {
  HelloReader caller(Handshake::Role::kCaller, secret, Nonce{std::byte{2}});
  EXPECT_TRUE(caller.begin(connection.far));
  EXPECT_EQ(connection.listen(), Got::kPart);
  EXPECT_EQ(caller.read(connection.far), Got::kPart);
  Got listener = connection.listen();
  const Got told = caller.read(connection.far);
  if (told == Got::kProven && listener == Got::kProven) {
    EXPECT_TRUE(send_hello(connection.far, of_text(hello)));
    listener = connection.listen();
  }
  return {told, listener};
}

TEST(Hello, WhoKnowsTheSecretIsLetIn) {
  Connection connection;
  EXPECT_EQ(shake(connection, connection.secret, "rank 3"), std::pair(Got::kProven, Got::kHello));
  EXPECT_EQ(Bytes(connection.reader.hello().begin(), connection.reader.hello().end()),
            of_text("rank 3"));
}

TEST(Hello, AnotherSecretIsToldToBoth) {
  Connection connection;
  EXPECT_EQ(shake(connection, of_text("another secret of this test"), "rank 3"),
            std::pair(Got::kSecret, Got::kSecret));
}

TEST(Hello, NothingIsReadOfWhatFollows) {
  Connection connection;
  HelloReader caller(Handshake::Role::kCaller, connection.secret, Nonce{});
  ASSERT_TRUE(caller.begin(connection.far));
  EXPECT_EQ(connection.listen(), Got::kPart);
  EXPECT_EQ(caller.read(connection.far), Got::kPart);
  Bytes all(4, std::byte{0});
  all[0] = std::byte{5};
  for (const std::byte byte : of_text("helloand a frame")) all.push_back(byte);
  EXPECT_EQ(connection.listen(), Got::kProven);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(connection.listen(), Got::kPart) << i;
    connection.send(std::span(all).subspan(i, 1));
  }
  connection.send(std::span(all).subspan(9));
  EXPECT_EQ(connection.listen(), Got::kHello);
  std::string rest(100, ' ');
  rest.resize(static_cast<std::size_t>(::recv(connection.near.get(), rest.data(), 100, 0)));
  EXPECT_EQ(rest, "and a frame");
}

TEST(Hello, GarbageOtherVersionsAndTheEnd) {
  Bytes opening = Handshake(Handshake::Role::kCaller, {}, Nonce{}).begin();
  {
    Connection connection;
    Bytes garbage = opening;
    garbage[5] ^= std::byte{1};
    connection.send(garbage);
    EXPECT_EQ(connection.listen(), Got::kGarbage);
  }
  {
    Connection connection;
    Bytes older = opening;
    older[kHandshakeMagicBytes - 1] = static_cast<std::byte>('1');
    connection.send(older);
    EXPECT_EQ(connection.listen(), Got::kVersion);
  }
  {
    Connection connection;
    connection.send(std::span(opening).first(8));
    connection.far.reset();
    EXPECT_EQ(connection.listen(), Got::kEnd);
    EXPECT_FALSE(send_hello(connection.near, opening));
  }
  for (const std::uint32_t length : {0U, std::uint32_t{HelloReader::kLongestHello} + 1, ~0U}) {
    Connection connection;
    HelloReader caller(Handshake::Role::kCaller, connection.secret, Nonce{});
    ASSERT_TRUE(caller.begin(connection.far));
    EXPECT_EQ(connection.listen(), Got::kPart);
    EXPECT_EQ(caller.read(connection.far), Got::kPart);
    EXPECT_EQ(connection.listen(), Got::kProven);
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
