// SPDX-License-Identifier: Apache-2.0
// The hello of leaders on the wire, and its reader, which must not read the bytes behind it.
#include "runtime/links/hello.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <utility>

#include "base/process/secrets.h"

namespace ronde::runtime {
namespace {

using base::FileDescriptor;

std::pair<FileDescriptor, FileDescriptor> socket_pair() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  return {FileDescriptor(fds[0]), FileDescriptor(fds[1])};
}

LeaderHello sample() {
  LeaderHello hello{0x01020304, 0x0A0B0C0D, {}};
  for (std::size_t i = 0; i < hello.secret.size(); ++i) {
    hello.secret.at(i) = static_cast<std::byte>(0xF0 + i);
  }
  return hello;
}

// Other versions must be able to read at least this much.
TEST(LeaderHello, TheBytesAreFixed) {
  const std::string expected =
      "RondeLdr\x04\x03\x02\x01\x0D\x0C\x0B\x0A"
      "\xF0\xF1\xF2\xF3\xF4\xF5\xF6\xF7\xF8\xF9\xFA\xFB\xFC\xFD\xFE\xFF";
  const HelloBytes bytes = encode_hello(sample());
  ASSERT_EQ(bytes.size(), expected.size());
  EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), expected.size()), 0);
  EXPECT_EQ(decode_hello(bytes), sample());
}

TEST(LeaderHello, SecretsDifferInAnyBit) {
  const JobSecret secret = sample().secret;
  EXPECT_TRUE(base::same_secret(secret, secret));
  EXPECT_TRUE(base::same_secret(inverted(inverted(secret)), secret));
  for (std::size_t bit = 0; bit < 8 * secret.size(); ++bit) {
    JobSecret other = secret;
    other.at(bit / 8) ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(base::same_secret(secret, other)) << bit;
  }
}

TEST(LeaderHello, TheReaderTakesNothingOfWhatFollows) {
  const auto [near, far] = socket_pair();
  const HelloBytes hello = encode_hello(sample());
  std::string bytes(reinterpret_cast<const char*>(hello.data()), hello.size());
  bytes += "a frame";
  ASSERT_EQ(::send(far.get(), bytes.data(), 10, 0), 10);
  HelloReader reader;
  EXPECT_EQ(reader.read(near), HelloReader::Got::kPart);
  EXPECT_EQ(reader.read(near), HelloReader::Got::kPart);
  ASSERT_EQ(::send(far.get(), bytes.data() + 10, bytes.size() - 10, 0),
            static_cast<ssize_t>(bytes.size() - 10));
  EXPECT_EQ(reader.read(near), HelloReader::Got::kHello);
  EXPECT_EQ(reader.hello(), sample());
  std::string rest(100, ' ');
  rest.resize(static_cast<std::size_t>(::recv(near.get(), rest.data(), rest.size(), 0)));
  EXPECT_EQ(rest, "a frame");
}

TEST(LeaderHello, TheReaderTellsGarbageAndTheEnd) {
  {
    const auto [near, far] = socket_pair();
    ASSERT_EQ(::send(far.get(), "RondeLdx", 8, 0), 8);
    EXPECT_EQ(HelloReader().read(near), HelloReader::Got::kGarbage);
  }
  auto [near, far] = socket_pair();
  ASSERT_EQ(::send(far.get(), "RondeLdr", 8, 0), 8);
  far.reset();
  EXPECT_EQ(HelloReader().read(near), HelloReader::Got::kEnd);
  EXPECT_FALSE(send_hello(near, sample()));
}

}  // namespace
}  // namespace ronde::runtime
