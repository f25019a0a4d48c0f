// SPDX-License-Identifier: Apache-2.0
// Ranks of this process that meet, each in a thread of its own, and strangers who disturb them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/wire/tcp_socket.h"
#include "runtime/meet/meet.h"
#include "test/support/strangers.h"

namespace ronde::runtime {

using MeetingPtr = std::unique_ptr<collectives::Meeting>;
using Met = base::Result<MeetingPtr>;

inline MeetingSecret secret_of(std::string_view text) {
  return MeetingSecret(strangers::bytes_of(text));
}

// A port of 127.0.0.1 below those that the kernel gives to connections, so that none of other
// programs takes it; tests that run side by side begin at others.
inline std::uint16_t free_port() {
  static std::atomic<std::uint32_t> next{0};
  for (int tries = 0; tries < 1000; ++tries) {
    const std::uint32_t port = (static_cast<std::uint32_t>(::getpid()) * 37U + next++) % 20000U;
    const auto own = static_cast<std::uint16_t>(10000U + port);
    if (base::listen_on({*base::parse_address("127.0.0.1"), own}, 0).ok()) return own;
  }
  return 1;
}

// A meeting point on the Unix socket of this host; no other test, here or in another process, has
// the same, since ports of its name need not be free.
inline MeetingPoint point_on_host() {
  static std::atomic<std::uint32_t> next{0};
  // Mixed with the process id, so that tests that run side by side have others.
  const std::uint32_t port = (static_cast<std::uint32_t>(::getpid()) * 37U + next++) % 65535U;
  return {"localhost", static_cast<std::uint16_t>(port + 1), true};
}

// Ranks meet over TCP at 127.0.0.1, as if they were on several hosts.
inline MeetingPoint point_over_tcp() { return {"127.0.0.1", free_port(), false}; }

// The ranks of one job. `change`, if given, changes the plan of a rank before it meets.
struct MeetingRanks {
  explicit MeetingRanks(std::int32_t ranks, MeetingPoint point) : size(ranks) {
    plan.size = ranks;
    plan.point = std::move(point);
    plan.launcher = "a test";
    if (!plan.point.one_host) plan.secret = secret_of("the secret of this test");
    plan.log = warnings.log(base::LogLevel::kWarning);
  }

  [[nodiscard]] MeetingPlan plan_of(std::int32_t rank) const {
    MeetingPlan mine = plan;
    mine.rank = rank;
    return mine;
  }
  Met meet_one(const MeetingPlan& mine) const { return meet(mine, clock, clock.after(limit)); }

  // All ranks meet, and then do `then`, each in a thread; returns the errors, by rank.
  std::vector<base::Status> run(
      const std::function<base::Status(std::int32_t, collectives::Meeting&)>& then = {},
      const std::function<void(std::int32_t, MeetingPlan&)>& change = {}) {
    std::vector<base::Status> results(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    threads.reserve(results.size());
    for (std::int32_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        MeetingPlan mine = plan_of(rank);
        if (change) change(rank, mine);
        auto met = meet_one(mine);
        auto& result = results[static_cast<std::size_t>(rank)];
        result = met.ok() && then ? then(rank, **met) : met.status();
        if (met.ok()) (*met)->close().ignore();
      });
    }
    for (auto& thread : threads) thread.join();
    return results;
  }

  std::int32_t size;
  MeetingPlan plan;
  base::SteadyClock clock;
  base::Nanoseconds limit = std::chrono::seconds(60);
  strangers::LogLines warnings;
};

// Exchanges what names the rank and the round, of a length of its own, and checks what comes back.
inline base::Status exchange_and_check(std::int32_t rank, collectives::Meeting& meeting, int rounds,
                                       const base::Clock& clock) {
  for (int round = 0; round < rounds; ++round) {
    const auto text = [&](std::int32_t of) {
      return std::to_string(of) + "/" + std::to_string(round) +
             std::string(static_cast<std::size_t>(of % 7), '.');
    };
    const auto all = meeting.allgather(strangers::bytes_of(text(rank)), "exchanging numbers", {},
                                       clock, clock.after(std::chrono::seconds(60)));
    RONDE_RETURN_IF_ERROR(all.status());
    for (std::int32_t other = 0; other < meeting.size(); ++other) {
      if ((*all)[static_cast<std::size_t>(other)] == strangers::bytes_of(text(other))) continue;
      return base::Status::error(base::Code::kInternal,
                                 "rank " + std::to_string(other) + "'s bytes are not what it sent");
    }
  }
  return {};
}

// Every rank got an error in one line, with all of these words.
inline void expect_all_say(const std::vector<base::Status>& results, base::Code code,
                           const std::vector<std::string>& words) {
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].code(), code) << rank << ": " << results[rank].to_string();
    for (const std::string& word : words) {
      EXPECT_THAT(results[rank].message(), ::testing::HasSubstr(word)) << "rank " << rank;
    }
    EXPECT_EQ(results[rank].message().find('\n'), std::string::npos);
  }
}

}  // namespace ronde::runtime
