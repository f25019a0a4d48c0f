// SPDX-License-Identifier: Apache-2.0
// Leaders of several hosts on this machine that meet over loopback, and strangers who disturb them.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/links/link_messages.h"
#include "runtime/links/meeting.h"

namespace ronde::runtime {

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
      : tree(hosts, fan_in), secret(16, std::byte{0x5A}) {
    for (std::int32_t host = 0; host < hosts; ++host) {
      auto meeting = LeaderMeeting::listen("127.0.0.0/8", name(host));
      EXPECT_TRUE(meeting.ok()) << meeting.status().to_string();
      addresses.push_back({10 * host + 3, name(host), meeting->addresses()});
      meetings.push_back(std::move(*meeting));
    }
  }
  static std::string name(std::int32_t host) { return "node" + std::to_string(host); }

  base::Result<base::LinkEnds> meet(std::int32_t host,
                                    std::chrono::nanoseconds limit = std::chrono::seconds(30)) {
    return meetings[static_cast<std::size_t>(host)].meet(tree, host, addresses, secret, clock,
                                                         clock.after(limit), log);
  }
  [[nodiscard]] base::Endpoint endpoint(std::int32_t host) const {
    return base::parse_endpoint(addresses[static_cast<std::size_t>(host)].addresses.front())
        .value();
  }

  HostTree tree;
  base::JobSecret secret;
  std::vector<LeaderAddress> addresses;
  std::vector<LeaderMeeting> meetings;
  base::SteadyClock clock;
  Lines lines;
  base::Log log = lines.log();
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The next frame of a link, in at most ten seconds.
inline std::string next_frame(base::FrameSocket& link) {
  for (int i = 0; i < 10'000 && !link.closed(); ++i) {
    const auto frame = link.receive();
    if (!frame.ok()) return frame.status().message();
    if (frame->has_value()) {
      return {reinterpret_cast<const char*>((*frame)->data()), (*frame)->size()};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return "nothing came";
}

// Every host sends its number to each neighbour, which shows that each link joins the right two.
inline bool talk(const HostTree& tree, std::int32_t host, base::LinkEnds ends) {
  bool good = ends.parent.has_value() == (host != HostTree::kRoot);
  std::vector<base::FrameSocket> links;
  if (ends.parent) {
    good = good && ends.parent->host == tree.parent_of(host);
    links.emplace_back(std::move(*ends.parent));
  }
  std::vector<std::int32_t> children;
  for (base::LinkEnd& end : ends.children) {
    children.push_back(end.host);
    links.emplace_back(std::move(end));
  }
  good = good && children == tree.children_of(host);
  for (base::FrameSocket& link : links) {
    good = good && link.send(bytes_of("from " + std::to_string(host))).ok();
    good = good && link.peer().starts_with("host " + std::to_string(link.host()) + " (node" +
                                           std::to_string(link.host()) + ", 127.0.0.1:");
  }
  for (base::FrameSocket& link : links) {
    good = good && next_frame(link) == "from " + std::to_string(link.host());
  }
  return good;
}

// All hosts meet and exchange their numbers; `late`: how long each waits before, by its number.
inline void expect_all_meet(
    Leaders& job, const std::function<std::chrono::milliseconds(std::int32_t)>& late = {}) {
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(job.tree.hosts()));
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

// A stranger's connection. It blocks, so that all its bytes are sent.
inline base::FileDescriptor stranger(const base::Endpoint& to,
                                     std::span<const std::byte> says = {}) {
  base::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(to.port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) return {};
  if (!says.empty()) (void)::send(socket.get(), says.data(), says.size(), MSG_NOSIGNAL);
  return socket;
}

// One that proves that it knows this secret, and says this, byte by byte; somebody listens.
inline base::FileDescriptor insider(const base::Endpoint& to, const base::JobSecret& secret,
                                    std::span<const std::byte> says) {
  base::FileDescriptor socket = stranger(to);
  base::HelloReader reader(base::Handshake::Role::kCaller, secret, base::Nonce{});
  auto got = reader.begin(socket) ? base::HelloReader::Got::kPart : base::HelloReader::Got::kEnd;
  for (int i = 0; i < 10'000 && got == base::HelloReader::Got::kPart; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    got = reader.read(socket);
  }
  if (got == base::HelloReader::Got::kProven) (void)base::send_hello(socket, says);
  return socket;
}
inline base::FileDescriptor insider(const base::Endpoint& to, const base::JobSecret& secret,
                                    const LeaderHello& hello) {
  return insider(to, secret, encode(hello));
}
// The host that answers an insider; nothing: nobody.
inline std::optional<LeaderHello> answer_to(const base::FileDescriptor& socket) {
  std::array<std::byte, 4 + 8> bytes{};
  if (::recv(socket.get(), bytes.data(), bytes.size(), MSG_WAITALL) != std::ssize(bytes)) return {};
  const auto hello = decode_leader_hello(std::span(bytes).subspan(4));
  return hello.ok() ? std::optional(*hello) : std::nullopt;
}

// Whether the other end closes a connection within some seconds, whatever it says before.
inline bool gets_closed(const base::FileDescriptor& socket) {
  const timeval limit{10, 0};
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char byte = 0;
  ssize_t got = 1;
  while (got > 0) got = ::recv(socket.get(), &byte, 1, 0);  // it may have answered before
  return got == 0 || errno == ECONNRESET;
}

}  // namespace ronde::runtime
