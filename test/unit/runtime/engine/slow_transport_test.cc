// SPDX-License-Identifier: Apache-2.0
// A transport that takes its time to close: UCX waits there until other ranks have what it sent.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "collectives/transport/end_table.h"
#include "runtime/engine/engine.h"
#include "test/support/engines.h"
#include "test/support/eventually.h"

namespace ronde::runtime {
namespace {

using testing::on_ranks;

struct Events {
  std::atomic<bool> closing{false};  // rank 1 closes its transport
  std::atomic<bool> left{false};     // rank 2 has left
};

// It carries nothing. That of rank 1 closes when rank 2 has left.
class SlowToClose {
 public:
  using Request = collectives::Transport::Request;

  SlowToClose(int rank, Events& events) : rank_(rank), events_(events) {}
  ~SlowToClose() {
    if (rank_ != 1) return;
    events_.closing = true;
    EXPECT_TRUE(testing::eventually([this] { return events_.left.load(); }));
  }
  SlowToClose(const SlowToClose&) = delete;
  SlowToClose& operator=(const SlowToClose&) = delete;

  static base::Result<Request> send(int, int, std::span<const std::byte>) { return 1; }
  static base::Result<Request> receive(int, int, std::span<std::byte>) { return 1; }
  static base::Result<bool> test(Request) { return true; }
  [[nodiscard]] static int outstanding() { return 0; }

 private:
  const int rank_;
  Events& events_;
};

// The hosts are a chain, so rank 2 hears of the others by rank 1 alone. It is told in time that no
// more decisions come, although rank 1 has not ended.
TEST(SlowTransport, RanksBelowOneThatClosesDoNotWaitForItsTransport) {
  Events events;
  const std::vector<std::int32_t> leaders{0, 1, 2};
  const auto job =
      LocalJob::create(*base::JobShape::of_leaders(leaders), 1, nullptr, [&](std::int32_t rank) {
        return std::make_unique<collectives::Transport>(collectives::transport_over(
            std::make_unique<SlowToClose>(rank, events), rank, 3, false));
      });
  ASSERT_TRUE(job.ok()) << job.status().message();
  on_ranks(3, [&](int rank) {
    const auto open = [&](const base::Config& config, const base::Clock& clock) {
      return (*job)->join(rank, config, clock);
    };
    // Leaders stay as long as they may, to pass on what rank 2 may still send: rank 1 until it
    // closes its transport, and rank 0, who does not hear of the end of rank 2.
    std::vector<std::string> environment;
    if (rank != 2) environment.emplace_back("RONDE_SHUTDOWN_TIMEOUT_SECONDS=2");
    const auto engine = Engine::open(open, environment, std::make_shared<base::SteadyClock>());
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    // Rank 0 stays, so that rank 2 has not heard before that the coordinator has left.
    const auto& before = rank == 0 ? events.left : events.closing;
    if (rank != 1) {
      EXPECT_TRUE(testing::eventually([&] { return before.load(); }));
    }
    const base::Status closed = (*engine)->close();
    EXPECT_TRUE(closed.ok()) << "rank " << rank << ": " << closed.message();
    if (rank == 2) events.left = true;  // and if it failed
  });
}

}  // namespace
}  // namespace ronde::runtime
