// SPDX-License-Identifier: Apache-2.0
// Strangers at the meeting point: whatever they send, or do not send, the ranks meet all the same,
// and it costs a line. (What the door itself does is in base/wire/door_test.cc.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/process/file_descriptor.h"
#include "base/wire/door.h"
#include "runtime/meet/messages.h"
#include "runtime/meet/place.h"
#include "test/unit/runtime/meet/meeting_ranks.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::FileDescriptor;
using base::Status;
using std::chrono::milliseconds;
using std::chrono::seconds;
using strangers::bytes_of;
using ::testing::HasSubstr;

// Connects as soon as somebody listens.
FileDescriptor knock(const MeetingPoint& point) {
  const base::SteadyClock clock;
  FileDescriptor socket;
  EXPECT_TRUE(ronde::testing::eventually([&] {
    if (!point.one_host) {
      socket = strangers::knock({*base::parse_address(point.host), point.port});
    } else if (auto met = connect_on_host(point, clock, clock.after(seconds(1))); met.ok()) {
      socket = std::move(*met);
      strangers::let_block(socket);
    }
    return socket.valid();
  })) << "nobody listens at "
      << text_of(point);
  return socket;
}

// Silence, garbage, and those who know the secret, but speak another version's language or none.
// Rank 1 comes when they are over, and nobody waits until the silent are turned away.
TEST(Strangers, DisturbNobodyAndAreALineEach) {
  const std::vector<std::byte> hellos[] = {
      encode(MeetingHello{kMeetingVersion + 1, 1, 2, {}, "a", "b", 3}), encode(MeetingPart()),
      std::vector<std::byte>(40, std::byte{0x33})};
  for (const bool tcp : {false, true}) {
    MeetingRanks job(3, tcp ? point_over_tcp() : point_on_host());
    job.limit = seconds(20);
    const auto began = job.clock.now();
    std::vector<FileDescriptor> silent;
    std::atomic<bool> over{false};
    std::thread come([&] {
      for (int i = 0; i < 20; ++i) silent.push_back(knock(job.plan.point));
      const auto garbage = knock(job.plan.point);
      strangers::say(garbage, bytes_of("GET / HTTP/1.1\r\n\r\n"));
      EXPECT_TRUE(strangers::is_closed_soon(garbage));
      for (const auto& hello : hellos) {
        const auto socket = knock(job.plan.point);
        strangers::introduce(socket, job.plan.secret.bytes(), hello);
        EXPECT_TRUE(strangers::is_closed_soon(socket));
      }
      over = true;
    });
    const auto results = job.run({}, [&](std::int32_t rank, MeetingPlan& /*mine*/) {
      while (rank == 1 && !over) std::this_thread::sleep_for(milliseconds(1));
    });
    come.join();
    for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.to_string();
    EXPECT_LT(job.clock.now() - began, base::Door::kTime);
    EXPECT_THAT(job.warnings.text(), HasSubstr("1 connection was turned away: what was sent is not "
                                               "Ronde's protocol (last from "));
    EXPECT_THAT(job.warnings.text(), HasSubstr("3 connections were turned away: another version of "
                                               "Ronde was at the other end"));
  }
}

TEST(Strangers, WithAnotherSecret) {
  MeetingRanks job(2, point_over_tcp());
  job.limit = seconds(3);
  const auto results = job.run({}, [](std::int32_t rank, MeetingPlan& mine) {
    if (rank == 1) mine.secret = secret_of("not the secret of this test");
  });
  EXPECT_EQ(results[1].code(), Code::kInvalidArgument);
  EXPECT_THAT(results[1].message(), HasSubstr("have different secrets"));
  EXPECT_EQ(results[0].code(), Code::kDeadline);
  EXPECT_THAT(results[0].message(),
              HasSubstr("rank 1 (host unknown) took no part in meeting at 127.0.0.1:"));
  EXPECT_THAT(
      results[0].message(),
      HasSubstr("1 connection was turned away: the secret (RONDE_JOB_SECRET) was not this"));
  for (const Status& result : results) {
    EXPECT_EQ(result.to_string().find("of this test"), std::string::npos) << "a secret was printed";
  }
  EXPECT_EQ(job.warnings.text(), "") << "the error says it already";
}

// What answers as rank 0 does not know the secret: the rank gives nothing away but its proof, which
// fits no other connection, and says so.
TEST(Strangers, InThePlaceOfRankZero) {
  MeetingRanks job(2, point_over_tcp());
  job.limit = seconds(20);
  auto listener = MeetingListener::open(job.plan.point, "", {});
  ASSERT_TRUE(listener.ok());
  std::vector<std::byte> heard;
  std::thread impostor([&] {
    pollfd entry{listener->sockets().front().get(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 10'000), 1);
    base::Accepted rank_1 = listener->accept(listener->sockets().front());
    strangers::let_block(rank_1.socket);
    heard = strangers::hear(rank_1.socket, base::kOpeningBytes);
    strangers::say(rank_1.socket, heard);  // its own nonce, back
    const auto proof = strangers::hear(rank_1.socket, sizeof(base::Digest));
    strangers::say(rank_1.socket, proof);  // and its own proof
    heard.insert(heard.end(), proof.begin(), proof.end());
    EXPECT_TRUE(strangers::is_closed_soon(rank_1.socket));
  });
  const Status result = job.meet_one(job.plan_of(1)).status();
  impostor.join();
  EXPECT_EQ(heard.size(), base::kOpeningBytes + sizeof(base::Digest));
  EXPECT_EQ(result.code(), Code::kInvalidArgument) << result.to_string();
  EXPECT_THAT(result.message(), HasSubstr("what answers as rank 0 at"));
}

}  // namespace
}  // namespace ronde::runtime
