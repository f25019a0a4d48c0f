// SPDX-License-Identifier: Apache-2.0
// Leaders that meet while strangers connect: garbage, wrong secrets, crowds, and false parents.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "runtime/links/meeting.h"
#include "runtime/links/tcp_socket.h"
#include "test/unit/runtime/links/meeting_leaders.h"

namespace ronde::runtime {
namespace {

using base::FileDescriptor;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// Strangers send everything that they can; each leaves its connection open.
TEST(LeaderStrangers, StrangersAreTurnedAwayAndCounted) {
  Leaders job(3, 1);  // a chain: host 1 is a child of 0, host 2 is not
  const Endpoint root = job.endpoint(0);
  const LeaderHello right{kLeaderProtocolVersion, 1, job.secret};
  LeaderHello version = right;
  version.version += 1;
  LeaderHello secret = right;
  secret.secret.back() ^= std::byte{1};
  LeaderHello inverse = right;
  inverse.secret = inverted(job.secret);
  LeaderHello host = right;
  host.host = 2;
  LeaderHello negative = right;
  negative.host = -1;

  std::vector<FileDescriptor> strangers;
  strangers.push_back(stranger(root, bytes_of("GET / HTTP/1.1\r\n\r\n")));
  for (const LeaderHello& hello : {version, secret, inverse, host, negative}) {
    strangers.push_back(stranger(root, hello));
  }
  const HelloBytes whole = encode_hello(right);
  stranger(root, std::span(whole).first(20)).reset();
  stranger(root).reset();
  strangers.push_back(stranger(root, std::span(whole).first(20)));  // sends no more

  expect_all_meet(job, [](std::int32_t one) { return milliseconds(one == 0 ? 0 : 300); });
  for (const FileDescriptor& one : strangers) EXPECT_TRUE(gets_closed(one));
  const std::string lines = job.lines.text();
  EXPECT_THAT(lines,
              HasSubstr("1 connection was turned away: what was sent is not Ronde's protocol"));
  EXPECT_THAT(lines, HasSubstr("1 connection was turned away: another version of Ronde"));
  EXPECT_THAT(lines, HasSubstr("2 connections were turned away: the secret was not this job's"));
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
  const FileDescriptor slow = stranger(job.endpoint(0));
  for (const std::byte& byte : encode_hello({kLeaderProtocolVersion, 1, job.secret})) {
    EXPECT_EQ(::send(slow.get(), &byte, 1, MSG_NOSIGNAL), 1);
    std::this_thread::sleep_for(milliseconds(2));
  }
  HelloBytes answer{};
  EXPECT_EQ(::recv(slow.get(), answer.data(), answer.size(), MSG_WAITALL),
            static_cast<ssize_t>(answer.size()));
  EXPECT_EQ(decode_hello(answer), (LeaderHello{kLeaderProtocolVersion, 0, inverted(job.secret)}));

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
  const Endpoint root = job.endpoint(0);
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
  const LeaderHello hello{kLeaderProtocolVersion, 1, job.secret};
  std::thread others([&] {
    {
      const FileDescriptor first = stranger(job.endpoint(0), hello);
      HelloBytes answer{};
      EXPECT_EQ(::recv(first.get(), answer.data(), answer.size(), MSG_WAITALL),
                static_cast<ssize_t>(answer.size()));
      EXPECT_TRUE(gets_closed(stranger(job.endpoint(0), hello))) << "it is connected already";
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

TEST(LeaderStrangers, AnAnswerMustBeOfThisJobAndOfTheParent) {
  const auto answered = [](const std::function<LeaderHello(const LeaderHello&)>& change) {
    Leaders job(2);
    auto listener = listen_on({*parse_address("127.0.0.1"), 0}, 0);
    job.addresses[0].addresses = {text_of(*own_end(*listener))};
    std::atomic<bool> stop{false};
    std::thread parent([&] {
      std::vector<FileDescriptor> open;
      while (!stop) {
        FileDescriptor socket = accept_next(*listener, {});
        if (!socket.valid()) {
          std::this_thread::sleep_for(milliseconds(1));
          continue;
        }
        (void)send_hello(socket, change({kLeaderProtocolVersion, 0, inverted(job.secret)}));
        open.push_back(std::move(socket));
      }
    });
    const auto links = job.meet(1, milliseconds(300));
    stop = true;
    parent.join();
    return links.ok() ? std::string("connected") : links.status().message();
  };
  EXPECT_EQ(answered([](LeaderHello hello) { return hello; }), "connected");
  EXPECT_THAT(answered([](LeaderHello hello) {
                hello.secret = inverted(hello.secret);  // an echo
                return hello;
              }),
              HasSubstr(": another job answers there)"));
  EXPECT_THAT(answered([](LeaderHello hello) {
                hello.host = 4;
                return hello;
              }),
              HasSubstr(": host 4 answers there)"));
  EXPECT_THAT(answered([](LeaderHello hello) {
                hello.version = 9;
                return hello;
              }),
              HasSubstr(": another version of Ronde answers there)"));
}

}  // namespace
}  // namespace ronde::runtime
