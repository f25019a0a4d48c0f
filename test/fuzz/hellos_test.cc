// SPDX-License-Identifier: Apache-2.0
// What is said at a door and in the meeting behind it, damaged by somebody who knows the secret.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "base/wire/hello.h"
#include "runtime/links/link_messages.h"
#include "runtime/meet/lobby.h"
#include "runtime/meet/messages.h"
#include "test/fuzz/damage.h"
#include "test/support/strangers.h"

namespace ronde::runtime {
namespace {

using fuzz::Bytes;
using fuzz::Random;

std::int32_t small(Random& random) { return static_cast<std::int32_t>(draw(random, -2, 9)); }

MeetingHello random_hello(Random& random) {
  const auto patience = std::chrono::milliseconds(draw(random, 0, 100'000));
  return {kMeetingVersion,     small(random),       small(random),           patience,
          random_text(random), random_text(random), draw(random, 1, 40'000), random_text(random)};
}

Bytes random_bytes(Random& random) {
  return Bytes(static_cast<std::size_t>(draw(random, 0, 9)), fuzz::random_byte(random));
}

Bytes random_meeting_message(Random& random) {
  const auto round = static_cast<std::uint32_t>(draw(random, 0, 9));
  const MeetingAll all{round, {random_bytes(random), random_bytes(random)}};
  const MeetingVerdict verdict{base::Code::kDeadline, small(random), random_text(random)};
  switch (draw(random, 0, 4)) {
    case 0:
      return encode(random_hello(random));
    case 1:
      return encode(MeetingPart{
          round, {}, {small(random), small(random), random_text(random)}, random_bytes(random)});
    case 2:
      return encode(all);
    case 3:
      return encode(verdict);
    default:
      return encode(MeetingAnswer{all, verdict});
  }
}

// Decodes a copy that ends where its memory ends, so that asan sees a read of one byte too many.
bool check_meeting_message(const Bytes& bytes) {
  const Bytes exact(bytes.begin(), bytes.end());
  const auto message = decode_meeting_message(exact);
  if (!message.ok()) {
    EXPECT_EQ(message.status().code(), base::Code::kInternal);
    return false;
  }
  EXPECT_TRUE(decode_meeting_message(encode(*message)).ok());
  return true;
}

TEST(MeetingMessagesFuzz, DamagedMessages) {
  fuzz::check_damaged(Random(20'261'127), random_meeting_message, check_meeting_message);
}

TEST(MeetingMessagesFuzz, EveryByteSetToEveryEndOfItsRange) {
  fuzz::check_every_byte(Random(8), random_meeting_message, check_meeting_message);
}

TEST(LeaderHelloFuzz, Damaged) {
  const auto check = [](const Bytes& bytes) {
    const auto hello = decode_leader_hello(bytes);
    EXPECT_TRUE(!hello.ok() || encode(*hello) == bytes);
    return hello.ok();
  };
  const auto hello = [](Random& random) {
    return encode(LeaderHello{LeaderHello::kVersion, small(random)});
  };
  fuzz::check_damaged(Random(9), hello, check);
  fuzz::check_every_byte(Random(10), hello, check);
}

// Whatever is said there, the lobby of a complete job takes its own ranks alone.
TEST(LobbyFuzz, OnlyRanksOfTheJobGetToTheMeeting) {
  const base::SteadyClock clock;
  MeetingPlan plan;
  plan.size = 3;
  plan.point = {"localhost", static_cast<std::uint16_t>(1 + ::getpid() % 60'000), true};
  plan.log = base::Log(base::LogLevel::kOff);
  std::vector<MeetingHello> ranks;
  for (std::int32_t rank = 0; rank < plan.size; ++rank) {
    ranks.push_back({kMeetingVersion, rank, plan.size, {}, "node7", "its id", 4711 + rank});
  }
  auto lobby = Lobby::enter(plan, ranks.front());
  ASSERT_TRUE(lobby.ok()) << lobby.status().to_string();
  (*lobby)->complete(ranks);
  Random random(11);
  int taken = 0;
  constexpr int kTries = 3000;
  for (int i = 0; i < kTries && !::testing::Test::HasFailure(); ++i) {
    const auto member = static_cast<std::size_t>(draw(random, 0, 2));
    Bytes hello = encode(draw(random, 0, 1) == 0 ? ranks[member] : random_hello(random));
    if (draw(random, 0, 2) != 0) fuzz::damage(random, hello, random_meeting_message(random));
    if (hello.empty()) continue;
    auto socket = connect_on_host(plan.point, clock, clock.after(std::chrono::seconds(5)));
    ASSERT_TRUE(socket.ok());
    const auto answer = [&] { EXPECT_TRUE((*lobby)->answer(clock).ok()); };
    ASSERT_EQ(strangers::introduce(*socket, {}, hello, answer), base::HelloReader::Got::kProven);
    answer();
    for (const Arrival& one : (*lobby)->take()) {
      ++taken;
      EXPECT_TRUE(one.hello.rank == 1 || one.hello.rank == 2);
      EXPECT_EQ(one.hello.pid, 4711 + one.hello.rank);
      EXPECT_EQ(one.hello.host_identity, "its id");
      EXPECT_EQ(one.hello.job, "");
    }
  }
  EXPECT_GT(taken, kTries / 20);
  (*lobby)->leave(clock);
}

}  // namespace
}  // namespace ronde::runtime
