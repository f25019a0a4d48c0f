// SPDX-License-Identifier: Apache-2.0
// Two runners that wake each other through their doorbells, as two ranks of a host do.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>

#include "runtime/drive/agent_runner.h"

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
    int do_work(SleepState&) override {
      if (expected == 0 || mine->arrived.load(std::memory_order_acquire) < expected) return 0;
      expected = 0;
      runner->complete(*completion);
      return 1;
    }
    bool busy() override { return false; }
    void want_rings(bool) override {}
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

// What one rank shows the other: its counter, and whether the other must ring.
struct Side {
  std::atomic<int> arrived{0};
  std::atomic<int> wants_rings{0};
  collectives::DoorbellWords words;
};

// Completes a work when its own side's counter has reached the expected round.
class CountingAgent final : public Agent {
 public:
  int do_work(SleepState&) override {
    const int now = expected.load(std::memory_order_acquire);
    busy_ = now != answered;
    if (!busy_ || mine->arrived.load(std::memory_order_seq_cst) < now) return 0;
    answered = now;
    busy_ = false;
    runner->complete(*completion);
    return 1;
  }
  bool busy() override { return busy_; }
  void want_rings(bool wanted) override {
    mine->wants_rings.store(wanted ? 1 : 0, std::memory_order_seq_cst);
    if (wanted) ++asked;
  }
  bool needs_polling() override { return false; }
  base::Instant next_deadline() override { return base::kNever; }
  void on_event(int) override {}

  Side* mine = nullptr;
  AgentRunner* runner = nullptr;
  Completion* completion = nullptr;  // written before `expected`
  std::atomic<int> expected{0};
  int answered = 0;
  int asked = 0;

 private:
  bool busy_ = false;
};

// Moves the other side's counter once a round, and rings if the other side wants it. Every second
// wait ends before the peer has moved, so that the background thread takes over as well.
void count_rounds(AgentRunner& runner, CountingAgent& agent, Side& other,
                  const collectives::Doorbell& bell_of_other) {
  constexpr int kRounds = 10'000;
  const base::SteadyClock clock;
  for (int round = 1; round <= kRounds; ++round) {
    Completion completion;
    agent.completion = &completion;
    agent.expected.store(round, std::memory_order_release);
    runner.notify(false);
    bool done = round % 2 == 0 && runner.wait(completion, clock.after(microseconds(2)));
    other.arrived.store(round, std::memory_order_seq_cst);
    if (other.wants_rings.load(std::memory_order_seq_cst) != 0) bell_of_other.ring();
    done = done || runner.wait(completion, clock.after(seconds(30)));
    ASSERT_TRUE(done) << "round " << round;
  }
}

// The same by counters: an agent that moves one rings only if it was asked to.
TEST(AgentRunnerPair, CountersRingOnlyThoseWhoAsk) {
  std::array<Side, 2> sides;
  auto fds = collectives::make_event_fds(2);
  ASSERT_TRUE(fds.ok());
  base::SteadyClock clock;
  std::array<CountingAgent, 2> agents;
  const auto play = [&](std::size_t me, microseconds spin) {
    const std::size_t other = 1 - me;
    AgentRunner::Options options;
    options.spin = spin;
    options.waiter_yield = spin;
    options.yield = microseconds(1);
    AgentRunner runner(agents[me], collectives::Doorbell(&sides[me].words, (**fds)[me].get()),
                       clock, options);
    agents[me].mine = &sides[me];
    agents[me].runner = &runner;
    ASSERT_TRUE(runner.start().ok());
    count_rounds(runner, agents[me], sides[other],
                 collectives::Doorbell(&sides[other].words, (**fds)[other].get()));
    runner.stop();
    EXPECT_GT(agents[me].asked, 0);
  };
  std::thread first([&] { play(0, microseconds(0)); });
  std::thread second([&] { play(1, microseconds(3)); });
  first.join();
  second.join();
}

}  // namespace
}  // namespace ronde::runtime
