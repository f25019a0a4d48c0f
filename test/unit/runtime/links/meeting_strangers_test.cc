// SPDX-License-Identifier: Apache-2.0
// Leaders that meet while strangers connect: garbage, wrong secrets, crowds, and false parents.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "base/wire/door.h"
#include "base/wire/tcp_socket.h"
#include "runtime/links/link_messages.h"
#include "runtime/links/meeting.h"
#include "test/unit/runtime/links/meeting_leaders.h"

namespace ronde::runtime {
namespace {

using base::FileDescriptor;
using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// Strangers send everything that they can; each leaves its connection open.
TEST(LeaderStrangers, StrangersAreTurnedAwayAndCounted) {
  Leaders job(3, 1);  // a chain: host 1 is a child of 0, host 2 is not
  const base::Endpoint root = job.endpoint(0);
  base::JobSecret other = job.secret;
  other.back() ^= std::byte{1};
  const Bytes opening =
      base::Handshake(base::Handshake::Role::kCaller, job.secret, base::Nonce{}).begin();
  std::vector<FileDescriptor> strangers;
  std::atomic<bool> all_came{false};
  std::thread come([&] {
    strangers.push_back(stranger(root, Bytes(50, std::byte{'G'})));
    Bytes older = opening;
    older[7] = std::byte{'1'};
    strangers.push_back(stranger(root, older));
    strangers.push_back(insider(root, job.secret, LeaderHello{LeaderHello::kVersion + 1, 1}));
    strangers.push_back(insider(root, job.secret, bytes_of("no hello at all")));
    strangers.push_back(insider(root, other, LeaderHello{.host = 1}));
    for (const std::int32_t host : {2, -1}) {
      strangers.push_back(insider(root, job.secret, LeaderHello{.host = host}));
    }
    stranger(root, std::span(opening).first(20)).reset();
    stranger(root).reset();
    strangers.push_back(stranger(root, std::span(opening).first(20)));  // sends no more
    all_came = true;
  });
  expect_all_meet(job, [&](std::int32_t one) {
    while (one != 0 && !all_came) std::this_thread::sleep_for(milliseconds(1));
    return milliseconds(one == 0 ? 0 : 300);
  });
  come.join();
  for (const FileDescriptor& one : strangers) EXPECT_TRUE(gets_closed(one));
  const std::string lines = job.lines.text();
  EXPECT_THAT(lines,
              HasSubstr("1 connection was turned away: what was sent is not Ronde's protocol"));
  EXPECT_THAT(lines, HasSubstr("3 connections were turned away: another version of Ronde"));
  EXPECT_THAT(lines, HasSubstr("1 connection was turned away: the secret was not this job's"));
  EXPECT_THAT(lines, HasSubstr("2 connections were turned away: the host at the other end has "
                               "another parent (last from 127.0.0.1:"));
  EXPECT_THAT(lines, HasSubstr("2 connections were turned away: the other end closed it before"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 5) << lines;
}

// A hello that arrives byte by byte is accepted; a connection whose hello stops is closed after
// five seconds.
TEST(LeaderStrangers, SlowHellosBesideRealChildren) {
  Leaders job(3);
  base::ManualClock manual;
  std::thread parent([&] {
    auto links = job.meetings[0].meet(job.tree, 0, job.addresses, job.secret, manual,
                                      manual.after(seconds(60)), job.log);
    ASSERT_TRUE(links.ok()) << links.status().to_string();
    EXPECT_EQ(links->children.size(), 2U);
  });
  const FileDescriptor silent = stranger(job.endpoint(0), bytes_of("Rond"));
  const FileDescriptor slow = insider(job.endpoint(0), job.secret, LeaderHello{.host = 1});
  EXPECT_EQ(answer_to(slow), LeaderHello{.host = 0});

  manual.advance(milliseconds(4900));
  std::this_thread::sleep_for(milliseconds(100));
  char byte = 0;
  EXPECT_EQ(::recv(silent.get(), &byte, 1, MSG_DONTWAIT), -1) << "closed too early";
  manual.advance(milliseconds(200));
  EXPECT_TRUE(gets_closed(silent));
  const auto last = job.meet(2);
  EXPECT_TRUE(last.ok());
  parent.join();
  EXPECT_THAT(job.lines.text(), HasSubstr("1 connection was turned away: no whole hello arrived"));
}

TEST(LeaderStrangers, AThousandStrangersKeepNobodyOut) {
  Leaders job(5);
  std::atomic<bool> stop{false};
  std::atomic<int> sent{0};
  const base::Endpoint root = job.endpoint(0);
  std::vector<std::thread> crowd;
  crowd.reserve(2);
  for (int i = 0; i < 2; ++i) {
    crowd.emplace_back([&, i] {
      std::vector<FileDescriptor> open;
      for (int number = 0; number < 500; ++number) {
        // Every second stranger sends nothing and stays.
        open.push_back(i == 0 ? stranger(root) : stranger(root, bytes_of("garbage")));
        ++sent;
      }
      while (!stop) std::this_thread::sleep_for(milliseconds(5));
    });
  }
  expect_all_meet(job, [&](std::int32_t host) {
    if (host != 0) {
      while (sent < 700) std::this_thread::sleep_for(milliseconds(1));
    }
    return milliseconds(0);
  });
  stop = true;
  for (auto& thread : crowd) thread.join();
  EXPECT_THAT(job.lines.text(), HasSubstr("too many others were waiting"));
}

// A child that lost its connection and connects again is accepted, and take() returns only the new
// connection.
TEST(LeaderStrangers, AChildThatComesAgainIsTaken) {
  Leaders job(3);
  const LeaderHello hello{.host = 1};
  std::thread others([&] {
    {
      const FileDescriptor first = insider(job.endpoint(0), job.secret, hello);
      EXPECT_EQ(answer_to(first), LeaderHello{.host = 0});
      EXPECT_TRUE(gets_closed(insider(job.endpoint(0), job.secret, hello)))
          << "it is connected already";
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

// What answers at the parent's address: a listener with this secret that says this.
std::string answered(const std::function<void(base::JobSecret&)>& change, const LeaderHello& says) {
  Leaders job(2);
  auto listener = base::listen_on({*base::parse_address("127.0.0.1"), 0}, 0);
  job.addresses[0].addresses = {text_of(*base::own_end(*listener))};
  base::JobSecret secret = job.secret;
  change(secret);
  std::atomic<bool> stop{false};
  std::thread parent([&] {
    const auto accept = [](const FileDescriptor& one) {
      return base::Accepted{base::accept_next(one, {}), "", false};
    };
    base::Door door({{&*listener}, accept, secret, "the secret", "in a test", 1});
    std::vector<base::Guest> guests;
    while (!stop) {
      std::vector<pollfd> entries;
      door.watch(entries);
      (void)::poll(entries.data(), entries.size(), 1);
      const std::size_t before = guests.size();
      ASSERT_TRUE(door.step(entries, job.clock.now(), guests).ok());
      if (guests.size() != before) (void)base::send_hello(guests.back().socket, encode(says));
    }
  });
  const auto links = job.meet(1, milliseconds(300));
  stop = true;
  parent.join();
  return links.ok() ? std::string("connected") : links.status().message();
}

TEST(LeaderStrangers, AnAnswerMustBeOfThisJobAndOfTheParent) {
  const auto same = [](base::JobSecret&) {};
  EXPECT_EQ(answered(same, {.host = 0}), "connected");
  EXPECT_THAT(
      answered([](base::JobSecret& secret) { secret.front() ^= std::byte{1}; }, {.host = 0}),
      HasSubstr(": another job answers there)"));
  EXPECT_THAT(answered(same, {.host = 4}), HasSubstr(": host 4 answers there)"));
  EXPECT_THAT(answered(same, {9, 0}), HasSubstr(": another version of Ronde answers there)"));
}

}  // namespace
}  // namespace ronde::runtime
