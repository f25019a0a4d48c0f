// SPDX-License-Identifier: Apache-2.0
// Leaders that meet while strangers connect: garbage, other secrets, and false children and
// parents. (What the door itself does is in base/wire/door_test.cc.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/wire/door.h"
#include "base/wire/tcp_socket.h"
#include "runtime/links/link_messages.h"
#include "runtime/links/meeting.h"
#include "test/support/eventually.h"
#include "test/unit/runtime/links/meeting_leaders.h"

namespace ronde::runtime {
namespace {

using base::FileDescriptor;
using std::chrono::milliseconds;
using std::chrono::seconds;
using strangers::bytes_of;
using strangers::is_closed_soon;
using strangers::knock;
using ::testing::HasSubstr;

// One that proves to the root that it knows this secret, and says this.
FileDescriptor insider(const Leaders& job, const base::JobSecret& secret,
                       std::span<const std::byte> says) {
  FileDescriptor socket = knock(job.endpoint(0));
  strangers::introduce(socket, secret, says);
  return socket;
}
FileDescriptor insider(const Leaders& job, const LeaderHello& hello) {
  return insider(job, job.secret, encode(hello));
}

// Strangers send everything that they can; each leaves its connection open.
TEST(LeaderStrangers, StrangersAreTurnedAwayAndCounted) {
  Leaders job(3, 1);  // a chain: host 1 is a child of 0, host 2 is not
  std::vector<FileDescriptor> others;
  std::atomic<bool> all_came{false};
  std::thread come([&] {
    for (int i = 0; i < 20; ++i) others.push_back(knock(job.endpoint(0)));  // silence
    others.push_back(knock(job.endpoint(0), bytes_of("GET / HTTP/1.1\r\n\r\n")));
    others.push_back(insider(job, {LeaderHello::kVersion + 1, 1}));
    others.push_back(insider(job, job.secret, bytes_of("no hello at all")));
    others.push_back(insider(job, bytes_of("another secret"), encode(LeaderHello{.host = 1})));
    for (const std::int32_t host : {2, -1}) others.push_back(insider(job, {.host = host}));
    // Those that have said something are turned away before the meeting is over.
    for (std::size_t i = 20; i < others.size(); ++i) EXPECT_TRUE(is_closed_soon(others[i]));
    all_came = true;
  });
  expect_all_meet(job, [&](std::int32_t one) {
    while (one != 0 && !all_came) std::this_thread::sleep_for(milliseconds(1));
    return milliseconds(0);
  });
  come.join();
  for (const FileDescriptor& one : others) EXPECT_TRUE(is_closed_soon(one));
  const std::string lines = job.lines.text();
  EXPECT_THAT(lines,
              HasSubstr("1 connection was turned away: what was sent is not Ronde's protocol"));
  EXPECT_THAT(lines, HasSubstr("2 connections were turned away: another version of Ronde"));
  EXPECT_THAT(lines, HasSubstr("1 connection was turned away: the secret was not this job's"));
  EXPECT_THAT(lines, HasSubstr("2 connections were turned away: the host at the other end has "
                               "another parent (last from 127.0.0.1:"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4) << lines;
}

// A connection whose hello stops is closed after five seconds, beside real children.
TEST(LeaderStrangers, TheDoorHasTheClockOfTheMeeting) {
  Leaders job(2);
  base::ManualClock manual;
  std::thread parent([&] {
    const auto links = job.meetings[0].meet(job.tree, 0, job.addresses, job.secret, manual,
                                            manual.after(seconds(60)), job.log);
    EXPECT_TRUE(links.ok()) << links.status().to_string();
  });
  const FileDescriptor silent = knock(job.endpoint(0), bytes_of("Rond"));
  // Whoever comes later and is turned away shows that the silent one has been let in.
  EXPECT_TRUE(is_closed_soon(knock(job.endpoint(0), bytes_of("GET / HTTP/1.1\r\n\r\n"))));
  manual.advance(base::Door::kTime);
  EXPECT_TRUE(is_closed_soon(silent));
  EXPECT_TRUE(job.meet(1).ok());
  parent.join();
  EXPECT_THAT(job.lines.text(), HasSubstr("1 connection was turned away: no whole hello arrived"));
}

// A child that lost its connection and connects again is accepted, and take() returns only the new
// connection.
TEST(LeaderStrangers, AChildThatComesAgainIsTaken) {
  Leaders job(3);
  std::thread others([&] {
    {
      const FileDescriptor first = insider(job, {.host = 1});
      const auto answer = strangers::hear(first, 4 + encode(LeaderHello()).size());
      EXPECT_EQ(decode_leader_hello(std::span(answer).subspan(4)).value(), LeaderHello{.host = 0});
      EXPECT_TRUE(is_closed_soon(insider(job, {.host = 1}))) << "it is connected already";
    }
    auto again = job.meet(1);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    auto last = job.meet(2);
    EXPECT_TRUE(talk(job.tree, 1, std::move(*again)));
    EXPECT_TRUE(last.ok() && talk(job.tree, 2, std::move(*last)));
  });
  auto links = job.meet(0);
  ASSERT_TRUE(links.ok()) << links.status().to_string();
  EXPECT_TRUE(talk(job.tree, 0, std::move(*links)));
  others.join();
  EXPECT_THAT(job.lines.text(), HasSubstr("a host disconnected"));
}

// A program that accepts connections and sends nothing listens on the first of two addresses.
TEST(LeaderStrangers, AnAddressThatDoesNotAnswerDoesNotHideTheNext) {
  Leaders job(2);
  const auto deaf = LeaderMeeting::listen("127.0.0.0/8", "deaf");
  job.addresses[0].addresses.insert(job.addresses[0].addresses.begin(), deaf->addresses().front());
  expect_all_meet(job);
}

// What a child says of what answers at its parent's address, with this secret and this hello.
std::string answered(const std::string& secret, const LeaderHello& says) {
  Leaders job(2);
  job.secret = bytes_of("the secret of this test");
  const auto listener = base::listen_on({*base::parse_address("127.0.0.1"), 0}, 0);
  job.addresses[0].addresses = {text_of(*base::own_end(*listener))};
  std::atomic<bool> stop{false};
  std::thread parent([&] {
    const auto accept = [](const FileDescriptor& one) { return base::accept_over_tcp(one, {}); };
    strangers::keep_door({{&*listener}, accept, bytes_of(secret), "the secret", "in a test", 1},
                         [&](std::vector<base::Guest>& guests) {
                           for (const auto& one : guests) {
                             (void)base::send_hello(one.socket, encode(says));
                           }
                           return stop.load();
                         });
  });
  const auto links = job.meet(1, milliseconds(300));
  stop = true;
  parent.join();
  return links.ok() ? std::string("connected") : links.status().message();
}

// On a busy machine the answer may come too late: then there is another try.
void expect_answered(const std::string& secret, const LeaderHello& says, const std::string& part) {
  const std::string said =
      testing::tries_of([&] { return answered(secret, says); },
                        [&](const auto& one) { return one.find(part) != std::string::npos; });
  EXPECT_THAT(said, HasSubstr(part));
}

TEST(LeaderStrangers, AnAnswerMustBeOfThisJobAndOfTheParent) {
  const std::string same = "the secret of this test";
  expect_answered(same, {.host = 0}, "connected");
  expect_answered("another", {.host = 0}, ": another job answers there)");
  expect_answered(same, {.host = 4}, ": host 4 answers there)");
  expect_answered(same, {9, 0}, ": another version of Ronde answers there)");
}

}  // namespace
}  // namespace ronde::runtime
