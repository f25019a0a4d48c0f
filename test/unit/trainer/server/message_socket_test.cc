// SPDX-License-Identifier: Apache-2.0
// Sockets of tasks: peers that end at a bad moment, and what is kept of those who send too much.
#include "bindings/trainer/server/message_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ronde::trainer::server {
namespace {

std::string address_of_test() {
  static std::atomic<int> count = 0;
  return "ipc://@ronde-socket-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

constexpr Address kServerOfSocket{Role::kServer, 0, 0};
constexpr Address kWorkerOfSocket{Role::kWorker, 1, 7};

std::unique_ptr<MessageSocket> worker_at(const std::string& address) {
  auto socket = std::make_unique<MessageSocket>(
      MessageSocketOptions{.self = kWorkerOfSocket, .access = {}, .say = {}});
  socket->connect(kServerOfSocket, address);
  return socket;
}

Message beat_of_socket(std::uint64_t sequence) {
  Message message;
  message.from = kWorkerOfSocket;
  message.to = kServerOfSocket;
  message.sequence = sequence;
  return message;
}

std::vector<Message> receive_of(MessageSocket& socket, double seconds) {
  std::vector<Message> all;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    for (Message& one : socket.receive(0.05)) all.push_back(std::move(one));
  }
  return all;
}

// ZeroMQ 4.3.4 aborts if a heartbeat of its own is due on a connection whose input it has stopped
// (as more waits than the mark allows), and whose other end is gone.
TEST(MessageSocket, APeerThatSendsMuchAndEndsIsNoEndOfTheOther) {
  const std::string address = address_of_test();
  MessageSocket server({.self = kServerOfSocket, .access = {}, .say = {}});
  server.listen(address);
  auto worker = worker_at(address);
  std::vector<Message> got;
  for (int i = 0; i < 1000 && got.empty(); ++i) {  // until they are connected
    worker->send(beat_of_socket(1));
    (void)worker->receive(0.005);
    got = server.receive(0.005);
  }
  ASSERT_FALSE(got.empty());
  const auto sends_until = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  // Many all the same where this thread gets no core for that long.
  for (std::uint64_t i = 0; i < 1000 || std::chrono::steady_clock::now() < sends_until; ++i) {
    worker->send(beat_of_socket(i + 1));
    (void)worker->receive(0.0);
  }
  worker.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  // ZeroMQ keeps eight (kMostReceived) for one who does not read; what was still on its way went
  // with the connection.
  got.clear();
  for (int i = 0; i < 100 && got.size() < 8; ++i) {
    for (Message& one : receive_of(server, 0.1)) got.push_back(std::move(one));
  }
  EXPECT_THAT(got, testing::SizeIs(testing::Ge(8U)));
}

Message answer_with(std::size_t floats, std::uint64_t sequence) {
  Message answer;
  answer.kind = Kind::kValues;
  answer.from = kServerOfSocket;
  answer.to = kWorkerOfSocket;
  answer.sequence = sequence;
  std::vector<float> values(floats);
  for (std::size_t i = 0; i < floats; ++i) values[i] = static_cast<float>(i % 1000);
  answer.floats = Floats::of(std::move(values));
  return answer;
}

// Larger than what ZeroMQ keeps, to one who reads late.
TEST(MessageSocket, ALargeMessageGoesInPiecesBothWays) {
  constexpr std::size_t kFloats = (std::size_t{40} << 18U) + 7;
  const std::string address = address_of_test();
  MessageSocket server({.self = kServerOfSocket, .access = {}, .say = {}});
  server.listen(address);
  const auto worker = worker_at(address);
  Message push = answer_with(kFloats, 1);
  push.kind = Kind::kPush;
  push.from = kWorkerOfSocket;
  push.to = kServerOfSocket;
  std::vector<Message> got;
  for (int i = 0; i < 1000 && got.empty(); ++i) {
    if (i == 0) worker->send(push);
    (void)worker->receive(0.005);
    got = server.receive(0.005);
  }
  ASSERT_THAT(got, testing::SizeIs(1));
  EXPECT_EQ(got[0].floats.whole(), push.floats.whole());
  server.send(answer_with(kFloats, 2));
  server.send(answer_with(3, 3));
  (void)server.receive(0.1);
  got.clear();
  for (int i = 0; i < 1000 && got.size() < 2; ++i) {
    for (Message& one : worker->receive(0.005)) got.push_back(std::move(one));
    (void)server.receive(0.005);
  }
  ASSERT_THAT(got, testing::SizeIs(2));
  EXPECT_EQ(got[0].floats.size(), kFloats);
  EXPECT_EQ(got[1].sequence, 3U);
}

// What waits for one who does not read, and what one may send who has no reason to.
TEST(MessageSocket, WhatIsUnderWayIsBounded) {
  const std::string address = address_of_test();
  std::string lines;
  MessageSocket server({.self = kServerOfSocket,
                        .access = {},
                        .say = [&](const std::string& line) { lines += line + "\n"; },
                        .waiting_bytes = 1000,
                        .most_bytes = [](const Address&) { return std::size_t{1} << 20U; }});
  server.listen(address);
  const auto worker = worker_at(address);
  std::vector<Message> got;
  while (got.empty()) {
    worker->send(beat_of_socket(1));
    got = server.receive(0.05);
  }
  constexpr std::size_t kMuch = std::size_t{64} << 18U;
  const Message large = answer_with(kMuch, 2);
  const auto uses = [&] { return large.floats.parts()[0].owner.use_count(); };
  for (int i = 0; i < 100; ++i) server.send(large);
  EXPECT_LE(uses(), 1 + 3 * 64) << "more than three of it wait, each in 64 pieces";
  Message push = answer_with(std::size_t{1} << 20U, 3);
  push.kind = Kind::kPush;
  push.from = {Role::kWorker, 2, 9};
  push.to = kServerOfSocket;
  MessageSocket other({.self = push.from, .access = {}, .say = {}});
  other.connect(kServerOfSocket, address);
  for (int i = 0; i < 200 && lines.find("more bytes") == std::string::npos; ++i) {
    if (i % 20 == 0) other.send(push);
    (void)other.receive(0.005);
    for (const Message& one : server.receive(0.005)) EXPECT_EQ(one.kind, Kind::kBeat);
  }
  EXPECT_THAT(lines, testing::HasSubstr("bytes of 'w2.9' are no message of this job (more bytes "
                                        "than it may send): they are ignored"));
}

}  // namespace
}  // namespace ronde::trainer::server
