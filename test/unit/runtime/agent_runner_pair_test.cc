// SPDX-License-Identifier: Apache-2.0
// Two runners that wake each other through their doorbells, as two ranks of a host do.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "runtime/agent_runner.h"

namespace ronde::runtime {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

// Two agents wake each other in turn through their doorbells: a lost wake-up stops them.
TEST(AgentRunnerPair, PingPong) {
  struct Side {
    std::atomic<int> arrived{0};
    collectives::DoorbellWords words;
  };
  std::array<Side, 2> sides;
  auto fds = collectives::make_event_fds(2);
  ASSERT_TRUE(fds.ok());
  class Echo final : public Agent {
   public:
    int do_work() override {
      if (expected == 0 || mine->arrived.load(std::memory_order_acquire) < expected) return 0;
      expected = 0;
      runner->complete(*completion);
      return 1;
    }
    bool runnable() override { return false; }
    bool busy() override { return false; }
    bool needs_polling() override { return false; }
    base::Instant next_deadline() override { return base::kNever; }
    void on_event(int) override {}
    Side* mine = nullptr;
    AgentRunner* runner = nullptr;
    std::atomic<int> expected{0};
    Completion* completion = nullptr;
  };
  constexpr int kRounds = 20'000;
  base::SteadyClock clock;
  std::array<Echo, 2> agents;
  const auto play = [&](std::size_t me, microseconds spin) {
    const std::size_t other = 1 - me;
    const collectives::Doorbell mine(&sides[me].words, (**fds)[me].get());
    const collectives::Doorbell yours(&sides[other].words, (**fds)[other].get());
    AgentRunner::Options options;
    options.spin = spin;
    AgentRunner runner(agents[me], mine, clock, options);
    agents[me].mine = &sides[me];
    agents[me].runner = &runner;
    ASSERT_TRUE(runner.start().ok());
    for (int round = 1; round <= kRounds; ++round) {
      Completion completion;
      agents[me].completion = &completion;
      agents[me].expected.store(round, std::memory_order_release);
      sides[other].arrived.store(round, std::memory_order_release);
      yours.ring();
      runner.notify(false);
      ASSERT_TRUE(runner.wait(completion, clock.after(seconds(30)))) << "round " << round;
    }
  };
  std::thread first([&] { play(0, microseconds(0)); });
  std::thread second([&] { play(1, microseconds(3)); });
  first.join();
  second.join();
}

}  // namespace
}  // namespace ronde::runtime
