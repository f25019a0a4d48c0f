// SPDX-License-Identifier: Apache-2.0
// Frames over a socket pair: whole, in pieces, many at once, too many, too long, and cut off.
#include "base/wire/frame_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace ronde::base {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> frame_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A length as it is on the wire.
std::string wire_length(std::uint32_t length) {
  std::string text;
  for (int i = 0; i < 4; ++i) text += static_cast<char>(length >> (8 * i));
  return text;
}

std::string wire(const std::string& frame) {
  return wire_length(static_cast<std::uint32_t>(frame.size())) + frame;
}

// A link and the raw socket at its other end.
struct Wire {
  Wire() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    other = FileDescriptor(fds[1]);
    link.emplace(base::LinkEnd{2, "host 2 (node7, 10.0.0.3:4711)", FileDescriptor(fds[0])});
  }
  void say(const std::string& text) const {
    ASSERT_EQ(::send(other.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Returns what has arrived at the other end, up to `most` bytes.
  [[nodiscard]] std::string heard(std::size_t most = std::size_t{1} << 20U) const {
    std::string text(most, ' ');
    const ssize_t size = ::recv(other.get(), text.data(), text.size(), MSG_DONTWAIT);
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }
  // The next frame; "" when there is none yet.
  std::string next() {
    auto frame = link->receive();
    EXPECT_TRUE(frame.ok()) << frame.status().to_string();
    return frame.ok() && frame->has_value() ? text_of(**frame) : "";
  }

  FileDescriptor other;
  std::optional<base::FrameSocket> link;
};

TEST(FrameSocket, AFrameIsItsLengthAndItsBytes) {
  Wire pair;
  ASSERT_TRUE(pair.link->send(frame_bytes("hello")).ok());
  EXPECT_FALSE(pair.link->backlogged());
  EXPECT_EQ(pair.heard(), wire("hello"));
  pair.say(wire("you"));
  EXPECT_EQ(pair.next(), "you");
  EXPECT_EQ(pair.next(), "");
  EXPECT_FALSE(pair.link->closed());
}

TEST(FrameSocket, QueuedFramesGoOutTogether) {
  Wire pair;
  ASSERT_TRUE(pair.link->queue(frame_bytes("a")).ok());
  ASSERT_TRUE(pair.link->queue(frame_bytes("bc")).ok());
  EXPECT_TRUE(pair.link->backlogged());
  EXPECT_EQ(pair.heard(), "");
  ASSERT_TRUE(pair.link->send(frame_bytes("d")).ok());
  EXPECT_FALSE(pair.link->backlogged());
  EXPECT_EQ(pair.heard(), wire("a") + wire("bc") + wire("d"));
}

TEST(FrameSocket, FramesInSingleBytes) {
  Wire pair;
  const std::string all = wire("first") + wire(std::string(300, 'x')) + wire("z");
  std::vector<std::string> frames;
  for (const char letter : all) {
    pair.say(std::string(1, letter));
    for (std::string frame = pair.next(); !frame.empty(); frame = pair.next()) {
      frames.push_back(frame);
    }
  }
  EXPECT_EQ(frames, (std::vector<std::string>{"first", std::string(300, 'x'), "z"}));
}

// Once the socket is full, frames are kept in order, without a system call for each.
TEST(FrameSocket, APeerThatDoesNotReadMakesABacklog) {
  Wire pair;
  std::string expected;
  int number = 0;
  for (; !pair.link->backlogged() && number < 100'000; ++number) {
    const std::string frame = std::to_string(number) + std::string(1000, '.');
    ASSERT_TRUE(pair.link->send(frame_bytes(frame)).ok());
    expected += wire(frame);
  }
  ASSERT_TRUE(pair.link->backlogged());
  std::string arrived;
  const auto hear_all = [&] {
    for (std::string more = pair.heard(); !more.empty(); more = pair.heard()) arrived += more;
  };
  hear_all();  // there is room again
  ASSERT_TRUE(pair.link->send(frame_bytes("late")).ok());
  expected += wire("late");
  EXPECT_EQ(pair.heard(), "") << "only flush() writes while there is a backlog";
  for (;;) {
    const auto empty = pair.link->flush();
    ASSERT_TRUE(empty.ok());
    hear_all();
    if (*empty) break;
  }
  EXPECT_TRUE(arrived == expected) << arrived.size() << " of " << expected.size();
  EXPECT_FALSE(pair.link->backlogged());
  // From here on a frame goes out at once again.
  ASSERT_TRUE(pair.link->send(frame_bytes("now")).ok());
  EXPECT_EQ(pair.heard(), wire("now"));
}

TEST(FrameSocket, ImpossibleLengthsAreAnErrorForEver) {
  for (const std::uint32_t length :
       {std::uint32_t{0}, static_cast<std::uint32_t>(base::FrameSocket::kLongestFrame) + 1, ~0U}) {
    Wire pair;
    pair.say(wire("good") + wire_length(length));
    EXPECT_EQ(pair.next(), "good");
    for (int i = 0; i < 2; ++i) {
      const auto frame = pair.link->receive();
      ASSERT_FALSE(frame.ok()) << length;
      EXPECT_EQ(frame.status().code(), Code::kTransport);
      EXPECT_THAT(frame.status().message(), HasSubstr("host 2 (node7, 10.0.0.3:4711)"));
      EXPECT_THAT(frame.status().message(), HasSubstr(std::to_string(length)));
    }
  }
}

TEST(FrameSocket, FramesThatCannotBeSentAreRefused) {
  Wire pair;
  EXPECT_EQ(pair.link->send({}).code(), Code::kInvalidArgument);
  const std::vector<std::byte> longer(base::FrameSocket::kLongestFrame + 1);
  EXPECT_EQ(pair.link->queue(longer).code(), Code::kInvalidArgument);
  EXPECT_FALSE(pair.link->backlogged());
}

TEST(FrameReader, MemoryGrowsWithWhatArrivesNotWithTheLength) {
  base::FrameReader reader;
  const std::string head =
      wire_length(static_cast<std::uint32_t>(base::FrameReader::kLongestFrame));
  std::memcpy(reader.room().data(), head.data(), head.size());
  reader.arrived(head.size());
  ASSERT_TRUE(reader.next().ok());
  EXPECT_LE(reader.capacity(), std::size_t{64} << 10U);
  // The whole frame arrives, and then its memory is freed.
  std::size_t arrived = 0;
  while (arrived < base::FrameReader::kLongestFrame) {
    const std::size_t some =
        std::min(reader.room().size(), base::FrameReader::kLongestFrame - arrived);
    reader.arrived(some);
    arrived += some;
    ASSERT_LE(reader.capacity(), 2 * (arrived + head.size()) + (std::size_t{64} << 10U));
  }
  const auto frame = reader.next();
  ASSERT_TRUE(frame.ok() && frame->has_value());
  EXPECT_EQ((*frame)->size(), base::FrameReader::kLongestFrame);
  EXPECT_FALSE(reader.room().empty());
  EXPECT_LE(reader.capacity(), std::size_t{64} << 10U);
}

// A stream in which the end of a frame never coincides with the end of the bytes that have arrived.
TEST(FrameReader, AStreamWithoutPauseStaysInItsBuffer) {
  base::FrameReader reader;
  const std::string stream = wire(std::string(999, 'a')) + wire(std::string(1500, 'b'));
  std::size_t at = 0;
  std::size_t frames = 0;
  for (std::size_t fed = 0; fed < 5'000'000;) {
    const auto room = reader.room();
    const std::size_t size = std::min<std::size_t>(room.size(), 1777);
    for (std::size_t i = 0; i < size; ++i) {
      room[i] = static_cast<std::byte>(stream[(at + i) % stream.size()]);
    }
    reader.arrived(size);
    at += size;
    fed += size;
    for (auto frame = reader.next(); frame.ok() && frame->has_value(); frame = reader.next()) {
      const std::string expected = frames % 2 == 0 ? std::string(999, 'a') : std::string(1500, 'b');
      ASSERT_EQ(text_of(**frame), expected) << frames;
      ++frames;
    }
  }
  EXPECT_EQ(frames, at / stream.size() * 2 + (at % stream.size() >= 1003 ? 1 : 0));
  EXPECT_LE(reader.capacity(), std::size_t{64} << 10U);
}

TEST(FrameSocket, TheEndComesAfterWholeFrames) {
  Wire pair;
  pair.say(wire("one") + wire("two"));
  pair.other.reset();
  EXPECT_EQ(pair.next(), "one");
  EXPECT_FALSE(pair.link->closed());
  EXPECT_EQ(pair.next(), "two");
  EXPECT_EQ(pair.next(), "");
  EXPECT_TRUE(pair.link->closed());
  EXPECT_EQ(pair.link->close_reason(), "closed by the other end");
  EXPECT_EQ(pair.next(), "");
}

TEST(FrameSocket, AnEndInTheMiddleOfAFrameSaysSo) {
  Wire pair;
  pair.say(wire("whole") + wire_length(100) + "only some");
  pair.other.reset();
  EXPECT_EQ(pair.next(), "whole");
  EXPECT_EQ(pair.next(), "");
  EXPECT_TRUE(pair.link->closed());
  EXPECT_THAT(pair.link->close_reason(), HasSubstr("middle of a frame"));
}

// The last frames of the other end are received, even if a write has failed before because it is
// closed.
TEST(FrameSocket, AWriteThatFailsLosesNothingThatArrived) {
  Wire pair;
  pair.say(wire("last words"));
  pair.other.reset();
  EXPECT_TRUE(pair.link->send(frame_bytes("anybody?")).ok());
  EXPECT_TRUE(pair.link->send(frame_bytes("hello?")).ok());
  EXPECT_FALSE(pair.link->backlogged());
  EXPECT_FALSE(pair.link->closed());
  EXPECT_EQ(pair.next(), "last words");
  EXPECT_EQ(pair.next(), "");
  EXPECT_TRUE(pair.link->closed());
  EXPECT_EQ(pair.link->close_reason(), "Broken pipe");
}

// Two ends of a TCP connection over loopback.
std::pair<FileDescriptor, FileDescriptor> tcp_pair() {
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  EXPECT_EQ(::bind(listener.get(), address, size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), address, &size), 0);
  FileDescriptor one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(one.get(), address, size), 0);
  return {std::move(one),
          FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

TEST(FrameSocket, AResetIsAnEndWithItsReason) {
  auto [near, far] = tcp_pair();
  base::FrameSocket link(base::LinkEnd{1, "host 1", std::move(near)});
  const linger at_once{1, 0};
  ASSERT_EQ(::setsockopt(far.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  far.reset();
  while (!link.closed()) {
    const auto frame = link.receive();
    ASSERT_TRUE(frame.ok() && !frame->has_value());
    std::this_thread::yield();
  }
  EXPECT_EQ(link.close_reason(), "Connection reset by peer");
  EXPECT_TRUE(link.send(frame_bytes("x")).ok());
  EXPECT_FALSE(link.backlogged());
}

}  // namespace
}  // namespace ronde::base
