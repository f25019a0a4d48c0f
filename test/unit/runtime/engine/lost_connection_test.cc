// SPDX-License-Identifier: Apache-2.0
// A transport that loses a connection: the job fails with its text only if no rank knows better.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/transport/end_table.h"
#include "runtime/engine/engine.h"
#include "test/support/engines.h"
#include "test/support/eventually.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;
using testing::allreduce_of;
using testing::on_ranks;

constexpr auto kGrace = std::chrono::seconds(1);

// An end between two ranks over which nothing arrives. After a while every request fails.
class Broken {
 public:
  using Request = collectives::Transport::Request;

  Broken(Status failure, base::Nanoseconds after)
      : failure_(std::move(failure)), from_(clock_.after(after)) {}

  base::Result<Request> send(int, int, std::span<const std::byte>) { return ++last_; }
  base::Result<Request> receive(int, int, std::span<std::byte>) { return ++last_; }
  base::Result<bool> test(Request) {
    if (clock_.now() < from_) return false;
    return failure_;
  }
  [[nodiscard]] static int outstanding() { return 1; }

 private:
  base::SteadyClock clock_;
  Status failure_;
  base::Instant from_;
  Request last_ = 0;
};

std::unique_ptr<collectives::Transport> broken(int rank, const Status& failure,
                                               base::Nanoseconds after) {
  return std::make_unique<collectives::Transport>(
      collectives::transport_over(std::make_unique<Broken>(failure, after), rank, 2, true));
}

struct Ending {
  Status status;
  base::Nanoseconds time{};
};

// Runs an allreduce over two hosts of one rank, over these transports, and returns with what each
// rank's work ended, and after how long.
std::vector<Ending> endings(const LocalJob::Transports& transports) {
  const std::vector<std::int32_t> leaders{0, 1};
  const auto shape = base::JobShape::of_leaders(leaders);
  const auto job = LocalJob::create(*shape, HostTree::kFanIn, nullptr, transports);
  EXPECT_TRUE(job.ok());
  std::vector<Ending> result(2);
  on_ranks(2, [&](int rank) {
    const auto open = [&](const base::Config& config, const base::Clock& clock) {
      return (*job)->join(rank, config, clock);
    };
    const auto engine = Engine::open(open, {}, std::make_shared<base::SteadyClock>());
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    std::vector<float> data(100, 1.0F);
    const base::SteadyClock clock;
    const base::Instant begin = clock.now();
    const auto work = (*engine)->submit(allreduce_of("t", data));
    ASSERT_TRUE(work.ok());
    const Status status = (*engine)->wait(**work);
    result[static_cast<std::size_t>(rank)] = {status, clock.now() - begin};
    (*engine)->close().ignore();
  });
  return result;
}

Status lost() { return Status::error(Code::kPeerFailed, "the connection is lost").with_rank(1); }

TEST(LostConnectionTest, WhereNoRankKnowsBetterTheTransportIsBelieved) {
  const auto ends = endings([](std::int32_t rank) {
    const auto after = rank == 0 ? std::chrono::seconds(0) : std::chrono::seconds(3600);
    return broken(rank, lost(), after);
  });
  for (const Ending& end : ends) {
    EXPECT_NE(end.status.message().find("the connection is lost"), std::string::npos)
        << end.status.to_string();
    EXPECT_EQ(end.status.rank(), 1);
    EXPECT_GE(end.time, kGrace) << "another rank had no time to say more";
  }
}

TEST(LostConnectionTest, ARankThatKnowsBetterIsHeard) {
  const auto transport = [](std::int32_t rank) {
    if (rank == 0) return broken(rank, lost(), std::chrono::seconds(0));
    const Status reason = Status::error(Code::kTransport, "the reason").with_rank(1);
    return broken(rank, reason, std::chrono::milliseconds(200));
  };
  // On a busy machine rank 1 may say it after the grace: then there is another try.
  const auto ends =
      testing::tries_of([&] { return endings(transport); },
                        [](const auto& one) {
                          return one[0].status.message().find("the reason") != std::string::npos;
                        });
  for (const Ending& end : ends) {
    EXPECT_NE(end.status.message().find("the reason"), std::string::npos) << end.status.to_string();
  }
}

}  // namespace
}  // namespace ronde::runtime
