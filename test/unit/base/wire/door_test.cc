// SPDX-License-Identifier: Apache-2.0
// Whom a door lets in, and whom it turns away with which words. Both doors of a job are this one.
#include "base/wire/door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/wire/tcp_socket.h"
#include "test/support/strangers.h"

namespace ronde::base {
namespace {

using std::chrono::milliseconds;
using strangers::bytes_of;
using strangers::hear;
using ::testing::HasSubstr;

// A door, in steps of the test, on a clock that the test moves.
struct Doorway {
  void step() { strangers::step(door, now, guests); }
  FileDescriptor knock(std::span<const std::byte> says = {}) {
    FileDescriptor socket = strangers::knock(*own_end(listener), says);
    step();
    return socket;
  }
  HelloReader::Got let_in(const FileDescriptor& socket, std::string_view with) {
    return strangers::introduce(socket, bytes_of(with), bytes_of("rank 3"), [&] { step(); });
  }
  // What the door says of those who were turned away, as soon as it has turned somebody away.
  std::string turned_away() {
    std::string text;
    EXPECT_TRUE(ronde::testing::eventually([&] {
      step();
      return !(text = door.turned_away()).empty();
    }));
    return text;
  }

  std::string secret = "the secret of this test";
  FileDescriptor listener = std::move(*listen_on({*parse_address("127.0.0.1"), 0}, 0));
  bool others = false;  // those who come are another user's
  Door door{{{&listener},
             [this](const FileDescriptor& from) {
               return Accepted{accept_next(from, {}), "a test", others};
             },
             bytes_of(secret),
             "the secret (RONDE_JOB_SECRET)",
             "in this test",
             1}};
  Instant now{};
  std::vector<Guest> guests;
};

// What is sent at first by who knows how to.
std::vector<std::byte> opening() {
  return Handshake(Handshake::Role::kCaller, {}, Nonce{}).begin();
}

TEST(Door, WhoKnowsTheSecretComesInWithItsHello) {
  Doorway way;
  const auto silent = way.knock();
  const auto socket = way.knock();
  EXPECT_EQ(way.let_in(socket, way.secret), HelloReader::Got::kProven);
  ASSERT_TRUE(ronde::testing::eventually([&] {
    way.step();
    return !way.guests.empty();
  }));
  EXPECT_EQ(way.guests.front().hello, bytes_of("rank 3"));
  EXPECT_EQ(way.guests.front().from, "a test");
  EXPECT_EQ(way.door.turned_away(), "");
}

TEST(Door, WhateverElseIsSentIsTurnedAway) {
  auto other_version = opening();
  other_version[kHandshakeMagicBytes - 1] = std::byte{'1'};
  auto half = opening();
  half.resize(20);
  const std::pair<std::vector<std::byte>, const char*> cases[] = {
      {bytes_of("GET / HTTP/1.1\r\n\r\n"), "what was sent is not Ronde's protocol"},
      {bytes_of("G"), "what was sent is not Ronde's protocol"},
      {other_version, "another version of Ronde was at the other end"},
      {{}, "the other end closed it before a whole hello"},
      {half, "the other end closed it before a whole hello"},
  };
  for (const auto& [said, reason] : cases) {
    Doorway way;
    (void)way.knock(said);
    EXPECT_EQ(way.turned_away(),
              std::string("; 1 connection was turned away: ") + reason + " (last from a test)");
    EXPECT_TRUE(way.guests.empty());
  }
}

TEST(Door, AnotherUserIsNotRead) {
  Doorway way;
  way.others = true;
  const auto socket = way.knock(opening());
  EXPECT_THAT(way.turned_away(), HasSubstr("it was another user's"));
  EXPECT_TRUE(strangers::is_closed_soon(socket));
}

TEST(Door, AnotherSecretIsTold) {
  Doorway way;
  EXPECT_EQ(way.let_in(way.knock(), "another secret"), HelloReader::Got::kSecret);
  EXPECT_THAT(way.turned_away(), HasSubstr("the secret (RONDE_JOB_SECRET) was not this job's"));
}

// Somebody who has recorded one side of a connection cannot use it again.
TEST(Door, ARecordingIsNoProof) {
  Doorway way;
  const auto secret = bytes_of(way.secret);
  Handshake genuine(Handshake::Role::kCaller, secret, Nonce{});
  std::vector<std::byte> proof;
  const auto first = way.knock(genuine.begin());
  genuine.take(hear(first, kOpeningBytes), proof);
  const auto socket = way.knock(genuine.begin());
  EXPECT_EQ(hear(socket, kOpeningBytes).size(), kOpeningBytes);
  strangers::say(socket, proof);
  EXPECT_THAT(way.turned_away(), HasSubstr("was not this job's"));
  EXPECT_EQ(hear(socket, sizeof(Digest)), std::vector<std::byte>(sizeof(Digest)));
  EXPECT_TRUE(strangers::is_closed_soon(socket));
}

TEST(Door, WhoStaysSilentIsNotWaitedForForever) {
  Doorway way;
  const auto silent = way.knock();
  const auto half = way.knock(bytes_of("Rond"));
  way.now += Door::kTime - milliseconds(1);
  way.step();
  EXPECT_EQ(way.door.turned_away(), "");
  way.now += milliseconds(1);
  EXPECT_THAT(way.turned_away(),
              HasSubstr("2 connections were turned away: no whole hello arrived within 5 s"));
}

// The oldest goes first: of those that have not begun, and then of those without a proof.
TEST(Door, ACrowdKeepsNobodyOut) {
  Doorway way;
  const auto begun = way.knock(opening());
  const auto expected = way.knock();
  std::vector<FileDescriptor> crowd;
  for (std::int64_t i = 2; i < Door::kFewestStrangers; ++i) crowd.push_back(way.knock());
  EXPECT_EQ(way.door.turned_away(), "");
  EXPECT_EQ(way.let_in(expected, way.secret), HelloReader::Got::kProven);
  for (int i = 0; i < 3; ++i) crowd.push_back(way.knock());
  EXPECT_THAT(way.turned_away(), HasSubstr("turned away: too many others were waiting"));
  EXPECT_TRUE(strangers::is_closed_soon(crowd.front()));
  EXPECT_EQ(way.guests.size(), 1U);
  EXPECT_EQ(hear(begun, kOpeningBytes).size(), kOpeningBytes);
  char byte = 0;
  EXPECT_EQ(::recv(begun.get(), &byte, 1, MSG_DONTWAIT), -1) << "it has begun, and was closed";
}

TEST(Door, AReasonIsALine) {
  Doorway way;
  strangers::LogLines lines;
  const Log log = lines.log(LogLevel::kWarning);
  way.door.count("it came too late", "here");
  way.door.count("it came too late", "there");
  way.door.report(log, Door::Report::kNewReasons);
  const std::string once = lines.text();
  EXPECT_THAT(once,
              HasSubstr("in this test, 2 connections were turned away: it came too late (last "
                        "from there)"));
  way.door.count("it came too late", "there");
  way.door.report(log, Door::Report::kNewReasons);
  EXPECT_EQ(lines.text(), once);
  way.door.report(log);
  EXPECT_THAT(lines.text(), HasSubstr("3 connections were"));
  way.door.report(log);
  EXPECT_EQ(std::ranges::count(lines.text(), '\n'), 2);
}

}  // namespace
}  // namespace ronde::base
