// SPDX-License-Identifier: Apache-2.0
// Leaders of several hosts on this machine that meet over loopback.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/links/link_messages.h"
#include "runtime/links/meeting.h"
#include "test/support/strangers.h"

namespace ronde::runtime {

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

  base::Result<LinkEnds> meet(std::int32_t host,
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
  strangers::LogLines lines;
  base::Log log = lines.log(base::LogLevel::kDebug);
};

// The next frame of a link.
inline std::string next_frame(base::FrameSocket& link) {
  std::string text = "nothing came";
  (void)testing::eventually([&] {
    const auto frame = link.receive();
    if (frame.ok() && frame->has_value()) {
      text = {reinterpret_cast<const char*>((*frame)->data()), (*frame)->size()};
    }
    return !frame.ok() || frame->has_value() || link.closed();
  });
  return text;
}

// Every host sends its number to each neighbour, which shows that each link joins the right two.
inline bool talk(const HostTree& tree, std::int32_t host, LinkEnds ends) {
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
    good = good && link.send(strangers::bytes_of("from " + std::to_string(host))).ok();
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

}  // namespace ronde::runtime
