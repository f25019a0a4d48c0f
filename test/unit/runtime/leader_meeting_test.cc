// SPDX-License-Identifier: Apache-2.0
// Leaders that meet over loopback, one thread each: in trees, late, among strangers, and in vain.
#include "runtime/leader_meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/tcp_socket.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Result;
using collectives::FileDescriptor;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// The lines of a log, from any thread.
class Lines {
 public:
  base::Log log() {
    return base::Log(base::LogLevel::kDebug, -1, [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      text_ += line;
    });
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

// The leaders of a job, all on this machine. Ranks are not host numbers, so that they cannot be
// mixed up.
struct Leaders {
  explicit Leaders(std::int32_t hosts, std::int32_t fan_in = HostTree::kFanIn)
      : tree(hosts, fan_in), secret(*make_job_secret()) {
    for (std::int32_t host = 0; host < hosts; ++host) {
      auto meeting = LeaderMeeting::listen("127.0.0.0/8", name(host));
      EXPECT_TRUE(meeting.ok()) << meeting.status().to_string();
      addresses.push_back({10 * host + 3, name(host), meeting->addresses()});
      meetings.push_back(std::move(*meeting));
    }
  }
  static std::string name(std::int32_t host) { return "node" + std::to_string(host); }

  Result<HostLinks> meet(std::int32_t host, std::chrono::nanoseconds limit = seconds(30)) {
    return meetings[static_cast<std::size_t>(host)].meet(tree, host, addresses, secret, clock,
                                                         clock.after(limit), log);
  }
  [[nodiscard]] Endpoint endpoint(std::int32_t host) const {
    return parse_endpoint(addresses[static_cast<std::size_t>(host)].addresses.front()).value();
  }

  HostTree tree;
  JobSecret secret;
  std::vector<LeaderAddress> addresses;
  std::vector<LeaderMeeting> meetings;
  base::SteadyClock clock;
  Lines lines;
  base::Log log = lines.log();
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The next frame of a link, in at most ten seconds.
std::string next_frame(LeaderLink& link) {
  for (int i = 0; i < 10'000 && !link.closed(); ++i) {
    const auto frame = link.receive();
    if (!frame.ok()) return frame.status().message();
    if (frame->has_value()) {
      return {reinterpret_cast<const char*>((*frame)->data()), (*frame)->size()};
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  return "nothing came";
}

// Every host tells each neighbour who it is: so each link joins the two that it says.
bool talk(const HostTree& tree, std::int32_t host, HostLinks ends) {
  bool good = ends.parent.has_value() == (host != HostTree::kRoot);
  std::vector<LeaderLink> links;
  if (ends.parent) {
    good = good && ends.parent->host == tree.parent_of(host);
    links.emplace_back(std::move(*ends.parent));
  }
  std::vector<std::int32_t> children;
  for (LinkEnd& end : ends.children) {
    children.push_back(end.host);
    links.emplace_back(std::move(end));
  }
  good = good && children == tree.children_of(host);
  for (LeaderLink& link : links) {
    good = good && link.send(bytes_of("from " + std::to_string(host))).ok();
    good = good && link.peer().starts_with("host " + std::to_string(link.host()) + " (node" +
                                           std::to_string(link.host()) + ", 127.0.0.1:");
  }
  for (LeaderLink& link : links) {
    good = good && next_frame(link) == "from " + std::to_string(link.host());
  }
  return good;
}

// All hosts meet and talk; `late`: how long each waits before, by its number.
void expect_all_meet(Leaders& job, const std::function<milliseconds(std::int32_t)>& late = {}) {
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (std::int32_t host = 0; host < job.tree.hosts(); ++host) {
    threads.emplace_back([&, host] {
      if (late) std::this_thread::sleep_for(late(host));
      auto links = job.meet(host);
      EXPECT_TRUE(links.ok()) << links.status().to_string();
      if (links.ok() && talk(job.tree, host, std::move(*links))) ++good;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good.load(), job.tree.hosts());
}

// A stranger's connection. Blocking, so that all it says is said.
FileDescriptor stranger(const Endpoint& to, std::span<const std::byte> says = {}) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(to.port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) return {};
  if (!says.empty()) (void)::send(socket.get(), says.data(), says.size(), MSG_NOSIGNAL);
  return socket;
}

FileDescriptor stranger(const Endpoint& to, const LeaderHello& hello) {
  const HelloBytes bytes = encode_hello(hello);
  return stranger(to, bytes);
}

// Whether the other end closes a connection within some seconds.
bool gets_closed(const FileDescriptor& socket) {
  const timeval limit{10, 0};
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char byte = 0;
  const ssize_t got = ::recv(socket.get(), &byte, 1, 0);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

TEST(LeaderMeeting, SecretsAreRandom) { EXPECT_NE(*make_job_secret(), *make_job_secret()); }

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
  std::optional<Result<HostLinks>> child;
  std::thread thread([&] { child.emplace(job.meet(1)); });
  const auto parent = job.meet(0);
  thread.join();
  ASSERT_TRUE(parent.ok() && child->ok());
  for (const int fd :
       {parent->children.front().socket.get(), child->value().parent->socket.get()}) {
    const auto option = [fd](int level, int name) {
      int value = -1;
      socklen_t size = sizeof value;
      EXPECT_EQ(::getsockopt(fd, level, name, &value, &size), 0);
      return value;
    };
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 5);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 2);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPCNT), 3);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 10'000);
    char byte = 0;
    EXPECT_EQ(::recv(fd, &byte, 1, 0), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
}

// Everything that a stranger can say; each leaves its connection open.
TEST(LeaderMeeting, StrangersAreTurnedAwayAndCounted) {
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
  strangers.push_back(stranger(root, std::span(whole).first(20)));  // says no more

  expect_all_meet(job, [](std::int32_t one) { return milliseconds(one == 0 ? 0 : 300); });
  for (const FileDescriptor& one : strangers) EXPECT_TRUE(gets_closed(one));
  const std::string lines = job.lines.text();
  EXPECT_THAT(lines, HasSubstr("1 connection was turned away: what was sent is not of Ronde"));
  EXPECT_THAT(lines, HasSubstr("1 connection was turned away: another version of Ronde"));
  EXPECT_THAT(lines, HasSubstr("2 connections were turned away: the secret was not this job's"));
  EXPECT_THAT(lines, HasSubstr("2 connections were turned away: the host at the other end has "
                               "another parent (last from 127.0.0.1:"));
  EXPECT_THAT(lines, HasSubstr("2 connections were turned away: the other end closed it before"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 5) << lines;
}

// A hello that comes byte by byte is one; one that stops is closed after five seconds.
TEST(LeaderMeeting, SlowHellosBesideRealChildren) {
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
  EXPECT_THAT(job.lines.text(), HasSubstr("1 connection was turned away: no whole hello came"));
}

TEST(LeaderMeeting, AThousandStrangersKeepNobodyOut) {
  Leaders job(5);
  std::atomic<bool> stop{false};
  std::atomic<int> sent{0};
  const Endpoint root = job.endpoint(0);
  std::vector<std::thread> crowd;
  for (int i = 0; i < 2; ++i) {
    crowd.emplace_back([&, i] {
      std::vector<FileDescriptor> open;
      for (int number = 0; number < 500; ++number) {
        // One of two says nothing and stays.
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

// A child that lost its connection and comes again is taken, and the old one is not handed out.
TEST(LeaderMeeting, AChildThatComesAgainIsTaken) {
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
  EXPECT_THAT(job.lines.text(), HasSubstr("a host left again"));
}

TEST(LeaderMeeting, NobodyListensAfterwards) {
  Leaders job(2);
  expect_all_meet(job);
  for (const std::int32_t host : {0, 1}) {
    EXPECT_FALSE(stranger(job.endpoint(host)).valid());
    EXPECT_EQ(errno, ECONNREFUSED);
    EXPECT_TRUE(job.meetings[static_cast<std::size_t>(host)].addresses().empty());
  }
  Leaders failing(2);
  EXPECT_FALSE(failing.meet(0, milliseconds(50)).ok());
  EXPECT_FALSE(stranger(failing.endpoint(0)).valid());
}

TEST(LeaderMeeting, AParentThatIsGoneIsNamedWithBothEnds) {
  Leaders job(2);
  const std::string gone = job.addresses[0].addresses.front();
  job.meetings.front() = std::move(*LeaderMeeting::listen("lo", "other"));
  const auto begin = job.clock.now();
  const auto links = job.meet(1, milliseconds(400));
  EXPECT_LT(job.clock.now() - begin, seconds(5));
  ASSERT_FALSE(links.ok());
  EXPECT_EQ(links.status().code(), Code::kDeadline);
  EXPECT_EQ(links.status().rank(), 3);
  EXPECT_EQ(links.status().message(),
            "host 1 (node1, " + job.addresses[1].addresses.front() +
                ") could not connect to host 0 (node0; tried " + gone +
                ": Connection refused): check the firewall between them, or choose the network "
                "with RONDE_INTERFACE");
}

// Over every address of the loopback interface: of both families where the machine has both.
TEST(LeaderMeeting, EveryAddressOfAnInterfaceServes) {
  const std::size_t addresses = LeaderMeeting::listen("lo", "node")->addresses().size();
  ASSERT_GE(addresses, 1U);
  for (std::size_t i = 0; i < addresses; ++i) {
    Leaders job(2);
    job.meetings[0] = std::move(*LeaderMeeting::listen("lo", "node0"));
    job.addresses[0].addresses = {job.meetings[0].addresses().at(i)};
    std::optional<Result<HostLinks>> child;
    std::thread thread([&] { child.emplace(job.meet(1)); });
    const auto parent = job.meet(0);
    thread.join();
    ASSERT_TRUE(parent.ok() && child->ok()) << child->status().to_string();
    EXPECT_EQ(child->value().parent->peer,
              "host 0 (node0, " + job.addresses[0].addresses.front() + ")");
  }
}

// The first of two addresses is of something that accepts and says nothing.
TEST(LeaderMeeting, AnAddressThatDoesNotAnswerDoesNotHideTheNext) {
  Leaders job(2);
  const auto deaf = LeaderMeeting::listen("127.0.0.0/8", "deaf");
  job.addresses[0].addresses.insert(job.addresses[0].addresses.begin(), deaf->addresses().front());
  expect_all_meet(job);
}

TEST(LeaderMeeting, AnAnswerMustBeOfThisJobAndOfTheParent) {
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

TEST(LeaderMeeting, ChildrenThatDoNotComeAreNamedWithBothEnds) {
  Leaders job(4);
  std::optional<Result<HostLinks>> other;
  std::thread thread([&] { other.emplace(job.meet(2, seconds(20))); });
  const auto links = job.meet(0, milliseconds(500));
  thread.join();
  EXPECT_TRUE(other->ok());
  ASSERT_FALSE(links.ok());
  EXPECT_EQ(links.status().code(), Code::kDeadline);
  EXPECT_EQ(links.status().rank(), 13);
  EXPECT_EQ(links.status().message(),
            "host 1 (node1, " + job.addresses[1].addresses.front() + "), host 3 (node3, " +
                job.addresses[3].addresses.front() + ") did not connect to host 0 (node0, " +
                job.addresses[0].addresses.front() +
                ") in time: check the firewall between them, or choose the network with "
                "RONDE_INTERFACE");
}

// The time is the injected clock's: this waits no real minute.
TEST(LeaderMeeting, TheDeadlineIsOfTheInjectedClock) {
  Leaders job(2);
  base::ManualClock manual;
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    manual.advance(seconds(61));
  });
  const auto links = job.meetings[0].meet(job.tree, 0, job.addresses, job.secret, manual,
                                          manual.after(seconds(60)), job.log);
  later.join();
  EXPECT_EQ(links.status().code(), Code::kDeadline);
}

TEST(LeaderMeeting, ListensOnWhatIsWantedAlone) {
  const auto meeting = LeaderMeeting::listen("127.0.0.1", "node7");
  ASSERT_TRUE(meeting.ok());
  ASSERT_EQ(meeting->addresses().size(), 1U);
  EXPECT_THAT(meeting->addresses().front(), testing::StartsWith("127.0.0.1:"));
  const auto refused = LeaderMeeting::listen("eht0", "node7");
  EXPECT_THAT(refused.status().message(),
              HasSubstr("RONDE_INTERFACE names 'eht0', which no interface of host node7 matches"));
}

}  // namespace
}  // namespace ronde::runtime
