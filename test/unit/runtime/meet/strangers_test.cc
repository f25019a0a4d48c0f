// SPDX-License-Identifier: Apache-2.0
// Strangers at the meeting point: whatever they send, or do not send, the ranks meet all the same,
// and it costs a line.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
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
using testing::HasSubstr;

// Connects as soon as somebody listens, and blocks from then on, for ten seconds at most.
FileDescriptor knock(const MeetingPoint& point) {
  const base::SteadyClock clock;
  const auto deadline = clock.after(seconds(20));
  while (clock.now() < deadline) {
    FileDescriptor socket;
    if (point.one_host) {
      auto connected = connect_on_host(point, clock, deadline);
      if (connected.ok()) socket = std::move(*connected);
    } else {
      auto connected = base::begin_connect({*base::parse_address(point.host), point.port}, 0, {});
      pollfd entry{connected.ok() ? connected->get() : -1, POLLOUT, 0};
      if (connected.ok() && ::poll(&entry, 1, 1000) == 1 && base::pending_error(*connected) == 0) {
        socket = std::move(*connected);
      }
    }
    if (socket.valid()) {
      const timeval limit{10, 0};
      (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      const int flags = ::fcntl(socket.get(), F_GETFL);
      (void)::fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK);
      return socket;
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  ADD_FAILURE() << "nobody listens at " << text_of(point);
  return {};
}

void say(const FileDescriptor& socket, std::span<const std::byte> bytes) {
  (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

std::vector<std::byte> hear(const FileDescriptor& socket, std::size_t size) {
  std::vector<std::byte> bytes(size);
  const ssize_t got = ::recv(socket.get(), bytes.data(), size, MSG_WAITALL);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

bool is_closed_soon(const FileDescriptor& socket) {
  for (;;) {
    std::array<char, 256> bytes{};
    const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) return got == 0 || errno == ECONNRESET;
  }
}

// The ranks meet while `disturb` goes on; rank 1 comes once it is over.
std::vector<Status> meet_beside(MeetingRanks& job, const std::function<void()>& disturb) {
  std::atomic<bool> over{false};
  std::thread stranger([&] {
    disturb();
    over = true;
  });
  const auto results = job.run({}, [&](std::int32_t rank, MeetingPlan& /*mine*/) {
    while (rank == 1 && !over) std::this_thread::sleep_for(milliseconds(1));
  });
  stranger.join();
  return results;
}

void expect_met(const std::vector<Status>& results) {
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.to_string();
}

TEST(Strangers, SendGarbage) {
  for (const bool tcp : {false, true}) {
    MeetingRanks job(2, tcp ? point_over_tcp() : point_on_host());
    expect_met(meet_beside(job, [&] {
      const auto socket = knock(job.plan.point);
      say(socket, part_of("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: everything\r\n\r\n"));
      EXPECT_TRUE(is_closed_soon(socket));
    }));
    EXPECT_THAT(job.warnings.text(), HasSubstr("1 connection was turned away: what was sent is not "
                                               "Ronde's protocol (last from "));
  }
}

TEST(Strangers, SendRandomBytes) {
  std::minstd_rand random(27);
  MeetingRanks job(2, point_over_tcp());
  expect_met(meet_beside(job, [&] {
    for (int i = 0; i < 200; ++i) {
      const auto socket = knock(job.plan.point);
      std::vector<std::byte> bytes(random() % 200);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      // Half of them begin as a rank does.
      if (i % 2 == 0) {
        const auto opening =
            base::Handshake(base::Handshake::Role::kCaller, job.plan.secret.bytes(), base::Nonce{})
                .begin();
        bytes.insert(bytes.begin(), opening.begin(),
                     opening.begin() + static_cast<std::ptrdiff_t>(random() % opening.size()));
      }
      say(socket, bytes);
    }
  }));
  EXPECT_THAT(job.warnings.text(), HasSubstr("turned away"));
}

TEST(Strangers, StaySilentWhileTheOthersMeet) {
  for (const bool tcp : {false, true}) {
    MeetingRanks job(3, tcp ? point_over_tcp() : point_on_host());
    std::vector<FileDescriptor> silent;
    const auto began = job.clock.now();
    expect_met(meet_beside(job, [&] {
      for (int i = 0; i < 20; ++i) silent.push_back(knock(job.plan.point));
    }));
    // Nobody waits until they are turned away for their silence.
    EXPECT_LT(job.clock.now() - began, base::Door::kTime);
  }
}

// A connection is closed after some seconds of silence, before the meeting is over.
TEST(Strangers, AreNotWaitedForForever) {
  MeetingRanks job(2, point_on_host());
  expect_met(meet_beside(job, [&] {
    const auto socket = knock(job.plan.point);
    EXPECT_TRUE(is_closed_soon(socket));
  }));
  EXPECT_THAT(job.warnings.text(), HasSubstr("no whole hello arrived within 5 s"));
}

TEST(Strangers, InACrowd) {
  MeetingRanks job(2, point_over_tcp());
  std::vector<FileDescriptor> crowd;
  expect_met(meet_beside(job, [&] {
    for (int i = 0; i < 300; ++i) crowd.push_back(knock(job.plan.point));
  }));
  EXPECT_THAT(job.warnings.text(), HasSubstr("too many others were waiting"));
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
    (void)::fcntl(rank_1.socket.get(), F_SETFL, 0);
    heard = hear(rank_1.socket, base::kOpeningBytes);
    say(rank_1.socket, heard);  // its own nonce, back
    const auto proof = hear(rank_1.socket, sizeof(base::Digest));
    say(rank_1.socket, proof);  // and its own proof
    heard.insert(heard.end(), proof.begin(), proof.end());
    EXPECT_TRUE(is_closed_soon(rank_1.socket));
  });
  const Status result = job.meet_one(job.plan_of(1)).status();
  impostor.join();
  EXPECT_EQ(heard.size(), base::kOpeningBytes + sizeof(base::Digest));
  EXPECT_EQ(result.code(), Code::kInvalidArgument) << result.to_string();
  EXPECT_THAT(result.message(), HasSubstr("what answers as rank 0 at"));
}

// Somebody who has recorded a rank's side of a meeting cannot use it again.
TEST(Strangers, RepeatWhatTheyHaveHeard) {
  MeetingRanks job(2, point_over_tcp());
  const base::Nonce nonce{std::byte{7}};
  base::Handshake genuine(base::Handshake::Role::kCaller, job.plan.secret.bytes(), nonce);
  std::vector<std::byte> proof;
  expect_met(meet_beside(job, [&] {
    for (int i = 0; i < 2; ++i) {
      const auto socket = knock(job.plan.point);
      say(socket, genuine.begin());
      const auto opening = hear(socket, base::kOpeningBytes);
      ASSERT_EQ(opening.size(), base::kOpeningBytes);
      if (i == 0) {
        genuine.take(opening, proof);
        continue;
      }
      say(socket, proof);
      EXPECT_EQ(hear(socket, sizeof(base::Digest)), std::vector<std::byte>(sizeof(base::Digest)));
      EXPECT_TRUE(is_closed_soon(socket));
    }
  }));
  EXPECT_THAT(job.warnings.text(), HasSubstr("the secret (RONDE_JOB_SECRET) was not this job's"));
}

// One that knows the secret, but speaks another version's language or none.
TEST(Strangers, WithTheSecretAndNonsense) {
  std::vector<std::byte> old_hello =
      encode(MeetingHello{kMeetingVersion + 1, 1, 2, {}, "a", "b", 3});
  const std::vector<std::byte> part = encode(MeetingPart());
  const std::vector<std::byte> nonsense(40, std::byte{0x33});
  for (const auto& frame : {old_hello, part, nonsense}) {
    MeetingRanks job(2, point_over_tcp());
    expect_met(meet_beside(job, [&] {
      const auto socket = knock(job.plan.point);
      base::Handshake handshake(base::Handshake::Role::kCaller, job.plan.secret.bytes(),
                                base::Nonce{});
      say(socket, handshake.begin());
      std::vector<std::byte> answer;
      while (handshake.take(hear(socket, handshake.wants()), answer) ==
             base::Handshake::Step::kGoOn) {
        say(socket, answer);
      }
      std::vector<std::byte> whole(4);
      const auto length = static_cast<std::uint32_t>(frame.size());
      std::memcpy(whole.data(), &length, sizeof length);
      whole.insert(whole.end(), frame.begin(), frame.end());
      say(socket, whole);
      EXPECT_TRUE(is_closed_soon(socket));
    }));
    EXPECT_THAT(job.warnings.text(), HasSubstr("another version of Ronde was at the other end"));
  }
}

}  // namespace
}  // namespace ronde::runtime
