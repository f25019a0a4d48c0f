// SPDX-License-Identifier: Apache-2.0
// Leaders that meet over loopback, one thread each: in trees, late, and without success.
#include "runtime/links/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "test/unit/runtime/links/meeting_leaders.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Result;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// What the leaders of two hosts have then.
std::pair<LinkEnds, LinkEnds> both_meet(Leaders& job) {
  std::optional<Result<LinkEnds>> child;
  std::thread thread([&] { child.emplace(job.meet(1)); });
  auto parent = job.meet(0);
  thread.join();
  return {std::move(parent.value()), std::move(child->value())};
}

TEST(LeaderMeeting, OneHostMeetsNobody) {
  Leaders job(1);
  const auto links = job.meet(0);
  ASSERT_TRUE(links.ok());
  EXPECT_FALSE(links->parent);
  EXPECT_TRUE(links->children.empty());
}

TEST(LeaderMeeting, TwoHosts) {
  Leaders job(2);
  expect_all_meet(job);
  EXPECT_EQ(job.lines.text(), "");
}

TEST(LeaderMeeting, TreesInEveryOrderOfArrival) {
  for (const std::int32_t fan_in : {1, 2, 4}) {
    for (const int direction : {0, 1, -1}) {
      Leaders job(5, fan_in);
      expect_all_meet(job, [&](std::int32_t host) {
        return milliseconds(direction == 0 ? 0 : direction > 0 ? 20 * host : 20 * (5 - host));
      });
      EXPECT_EQ(job.lines.text(), "");
    }
  }
}

// The kernel takes the connection long before the parent looks at it.
TEST(LeaderMeeting, AParentThatComesLateIsWaitedFor) {
  Leaders job(3);
  expect_all_meet(job, [](std::int32_t host) { return milliseconds(host == 0 ? 2500 : 0); });
}

TEST(LeaderMeeting, TheLinksDoNotBlockAndNoticeAVanishedHost) {
  Leaders job(2);
  const auto [parent, child] = both_meet(job);
  for (const int fd : {parent.children.front().socket.get(), child.parent->socket.get()}) {
    const auto option = [fd](int level, int name) {
      int value = -1;
      socklen_t size = sizeof value;
      EXPECT_EQ(::getsockopt(fd, level, name, &value, &size), 0);
      return value;
    };
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 5);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 5);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPCNT), 11);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 60'000);
    char byte = 0;
    EXPECT_EQ(::recv(fd, &byte, 1, 0), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
}

// RONDE_LINK_TIMEOUT_SECONDS. The probes end when the setting says, to the second, and go on
// until shortly before, so that a host that was silent for a while is found to be back.
TEST(KeepaliveR12, EndsAConnectionWhenTheSettingSays) {
  for (const std::int64_t span : {2, 3, 4, 5, 10, 13, 23, 60, 100, 86'400}) {
    const base::Keepalive keepalive = base::Keepalive::of(seconds(span));
    EXPECT_EQ(keepalive.idle + keepalive.count * keepalive.interval, seconds(span));
    EXPECT_EQ(keepalive.unanswered, seconds(span));
    for (const auto each : {keepalive.idle, keepalive.interval}) {
      EXPECT_GE(each, seconds(1)) << span;
      EXPECT_LE(each, seconds(32'767)) << "the most that the kernel takes";
    }
    EXPECT_GE(keepalive.count, 1);
    EXPECT_LE(keepalive.count, 127) << "the most that the kernel takes";
    const seconds last_probe = keepalive.idle + (keepalive.count - 1) * keepalive.interval;
    EXPECT_TRUE(5 * last_probe >= 4 * seconds(span) || keepalive.interval == seconds(1)) << span;
  }
  const base::Keepalive odd = base::Keepalive::of(milliseconds(2500));
  EXPECT_EQ(odd.idle + odd.count * odd.interval, seconds(3));
  EXPECT_EQ(odd.unanswered, milliseconds(2500));
  const base::Keepalive usual = base::Keepalive::of(seconds(60));
  EXPECT_EQ(usual.idle, base::Keepalive().idle);
  EXPECT_EQ(usual.interval, base::Keepalive().interval);
  EXPECT_EQ(usual.count, base::Keepalive().count);
  EXPECT_EQ(usual.unanswered, base::Keepalive().unanswered);
}

TEST(LeaderMeeting, NobodyListensAfterwards) {
  Leaders job(2);
  expect_all_meet(job);
  for (const std::int32_t host : {0, 1}) {
    EXPECT_FALSE(strangers::knock(job.endpoint(host)).valid());
    EXPECT_EQ(errno, ECONNREFUSED);
    EXPECT_TRUE(job.meetings[static_cast<std::size_t>(host)].addresses().empty());
  }
  Leaders failing(2);
  EXPECT_FALSE(failing.meet(0, milliseconds(50)).ok());
  EXPECT_FALSE(strangers::knock(failing.endpoint(0)).valid());
}

TEST(LeaderMeeting, AParentThatIsGoneIsNamedWithBothEnds) {
  Leaders job(2);
  const std::string gone = job.addresses[0].addresses.front();
  job.meetings.front() = std::move(*LeaderMeeting::listen("lo", "other"));
  const auto begin = job.clock.now();
  const auto links = job.meet(1, seconds(4));  // in which even a busy machine tries it once
  EXPECT_LT(job.clock.now() - begin, seconds(30));
  ASSERT_FALSE(links.ok());
  EXPECT_EQ(links.status().code(), Code::kDeadline);
  EXPECT_EQ(links.status().rank(), 3);
  EXPECT_EQ(
      links.status().message(),
      "host 1 (node1, " + job.addresses[1].addresses.front() +
          ") could not connect to host 0 (node0; tried " + gone +
          ": Connection refused): check the firewall between them (RONDE_PORTS), or choose the "
          "network with RONDE_INTERFACE");
}

// Leaders connect over every address of the loopback interface: of both families where the machine
// has both.
TEST(LeaderMeeting, EveryAddressOfAnInterfaceServes) {
  const std::size_t addresses = LeaderMeeting::listen("lo", "node")->addresses().size();
  ASSERT_GE(addresses, 1U);
  for (std::size_t i = 0; i < addresses; ++i) {
    Leaders job(2);
    job.meetings[0] = std::move(*LeaderMeeting::listen("lo", "node0"));
    job.addresses[0].addresses = {job.meetings[0].addresses().at(i)};
    EXPECT_EQ(both_meet(job).second.parent->peer,
              "host 0 (node0, " + job.addresses[0].addresses.front() + ")");
  }
}

TEST(LeaderMeeting, ChildrenThatDoNotComeAreNamedWithBothEnds) {
  Leaders job(4);
  std::optional<Result<LinkEnds>> other;
  base::ManualClock manual;
  const base::Instant deadline = manual.after(seconds(60));
  std::thread thread([&] {
    other.emplace(job.meet(2, seconds(20)));
    manual.advance(seconds(61));
  });
  const auto links =
      job.meetings[0].meet(job.tree, 0, job.addresses, job.secret, manual, deadline, job.log);
  thread.join();
  EXPECT_TRUE(other->ok());
  ASSERT_FALSE(links.ok());
  EXPECT_EQ(links.status().code(), Code::kDeadline);
  EXPECT_EQ(links.status().rank(), 13);
  EXPECT_EQ(links.status().message(),
            "host 1 (node1, " + job.addresses[1].addresses.front() + "), host 3 (node3, " +
                job.addresses[3].addresses.front() + ") did not connect to host 0 (node0, " +
                job.addresses[0].addresses.front() +
                ") in time: check the firewall between them (RONDE_PORTS), or choose the "
                "network with RONDE_INTERFACE");
}

// The deadline is on the injected clock, so this does not wait a real minute.
TEST(LeaderMeeting, TheDeadlineIsOfTheInjectedClock) {
  Leaders job(2);
  base::ManualClock manual;
  const base::Instant deadline = manual.after(seconds(60));
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    manual.advance(seconds(61));
  });
  const auto links =
      job.meetings[0].meet(job.tree, 0, job.addresses, job.secret, manual, deadline, job.log);
  later.join();
  EXPECT_EQ(links.status().code(), Code::kDeadline);
}

TEST(LeaderMeeting, ListensOnWhatIsWantedAlone) {
  const auto meeting = LeaderMeeting::listen("127.0.0.1", "node7");
  ASSERT_TRUE(meeting.ok());
  ASSERT_EQ(meeting->addresses().size(), 1U);
  EXPECT_THAT(meeting->addresses().front(), ::testing::StartsWith("127.0.0.1:"));
  const auto refused = LeaderMeeting::listen("eht0", "node7");
  EXPECT_THAT(refused.status().message(),
              HasSubstr("RONDE_INTERFACE names 'eht0', which no interface of host node7 matches"));
}

// Ports that the tests beside this one do not take as the kernel chooses them: below its range.
TEST(LeaderMeeting, TakesTheFirstFreePortOfItsRange) {
  const auto in = [](std::uint16_t last) {
    return LeaderMeeting::listen("127.0.0.1", "node", base::PortRange{29440, last});
  };
  const auto port_of = [](const LeaderMeeting& meeting) {
    return base::parse_endpoint(meeting.addresses().at(0))->port;
  };
  const auto first = in(29459);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const std::uint16_t taken = port_of(*first);
  EXPECT_GE(taken, 29440);
  const auto second = in(29459);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_GT(port_of(*second), taken);
  EXPECT_LE(port_of(*second), 29459);
  const auto none = in(taken);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(
      none.status().message(),
      "none of the " + std::to_string(taken - 29439) + " ports of RONDE_PORTS=29440-" +
          std::to_string(taken) +
          " can be used here: on each host an engine needs 1 for the leader and, over UCX, 1 for "
          "each rank; widen the range (a port is free a minute after its job), or end what "
          "has them ('ss -tan' shows it): could not listen on 127.0.0.1:" +
          std::to_string(taken) + ": Address already in use");
}

}  // namespace
}  // namespace ronde::runtime
