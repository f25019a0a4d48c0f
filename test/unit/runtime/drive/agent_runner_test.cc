// SPDX-License-Identifier: Apache-2.0
// The runner with real threads, futexes, an eventfd and an epoll, on a toy agent.
#include "runtime/drive/agent_runner.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "test/support/eventually.h"

namespace ronde::runtime {
namespace {

using ronde::testing::eventually;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kSlots = 64;

// An agent whose work i is done when a poster has filled slot i. It checks that only one thread at
// a time drives it.
class ToyAgent final : public Agent {
 public:
  struct Slot {
    std::atomic<bool> laid{false};    // by a poster
    std::atomic<bool> silent{false};  // data come without a ring: poll
    bool finished = false;            // only the holder of the role uses it
    int payload = 0;                  // plain, written before laid; for the thread sanitizer
    int result = 0;                   // plain, written before complete()
    Completion completion;
  };

  int do_work(SleepState& sleep) override {
    EXPECT_FALSE(inside_.exchange(true));
    ++looks_;
    if (!rings_wanted.load()) undisturbed.store(true);
    int amount = 0;
    bool polling = false;
    bool left = false;
    for (Slot& slot : slots) {
      if (slot.finished) continue;
      if (slot.laid.load(std::memory_order_acquire)) {
        if (one_at_a_time && amount > 0) {
          left = true;
          break;
        }
        slot.finished = true;
        slot.result = slot.payload + 1;
        runner->complete(slot.completion);
        ++amount;
      } else if (slot.silent.load(std::memory_order_acquire)) {
        polling = true;
      }
    }
    polling_ = polling;
    if (message >= 0) sleep.watch(message).ignore();
    sleep.note_left(left);
    if (clock.now() >= timer) {
      timer = base::kNever;
      timer_fired.store(true);
    }
    if (amount > 0 && timer_after_first != base::kNever) {
      timer = clock.after(std::exchange(timer_after_first, base::kNever));
    }
    inside_.store(false);
    return amount;
  }
  bool busy() override { return polling_; }
  void want_rings(bool wanted) override { rings_wanted.store(wanted); }
  bool has_descriptors() override { return descriptors; }
  bool needs_polling() override { return polling_; }
  base::Instant next_deadline() override { return timer; }
  void on_event(int fd) override {
    event.store(fd);
    events.fetch_add(1);
  }

  [[nodiscard]] int looks() const { return looks_.load(); }

  AgentRunner* runner = nullptr;
  std::array<Slot, kSlots> slots;
  std::atomic<int> event{-1};
  std::atomic<int> events{0};
  std::atomic<bool> rings_wanted{false};
  std::atomic<bool> undisturbed{false};  // it was stepped while no rings were wanted
  std::atomic<bool> descriptors{false};
  bool one_at_a_time = false;
  std::atomic<int> message{-1};  // a descriptor of which every look has taken all
  base::SteadyClock clock;
  base::Instant timer = base::kNever;
  base::Nanoseconds timer_after_first = base::kNever;  // after the first completion
  std::atomic<bool> timer_fired{false};

 private:
  std::atomic<bool> inside_{false};
  bool polling_ = false;
  std::atomic<int> looks_{0};
};

class AgentRunnerTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto made = collectives::make_event_fds(1);
    ASSERT_TRUE(made.ok());
    fds = *made;
    bell = collectives::Doorbell(&words, fds->front().get());
  }
  // A fresh agent and runner.
  void begin(AgentRunner::Options options = {}) {
    runner.reset();
    agent = std::make_unique<ToyAgent>();
    runner = std::make_unique<AgentRunner>(*agent, bell, clock, options);
    agent->runner = runner.get();
  }
  void start(AgentRunner::Options options = {}) {
    begin(options);
    ASSERT_TRUE(runner->start().ok());
  }
  void lay(std::size_t i, int payload) {
    agent->slots[i].payload = payload;
    agent->slots[i].laid.store(true, std::memory_order_release);
  }

  // Declared before the runner, which uses them until it is destroyed.
  collectives::DoorbellWords words;
  collectives::EventFds fds;
  base::SteadyClock clock;
  collectives::Doorbell bell;
  std::unique_ptr<ToyAgent> agent;
  std::unique_ptr<AgentRunner> runner;
};

TEST_F(AgentRunnerTest, TheBackgroundThreadWorksAlone) {
  start();
  lay(3, 7);
  runner->notify(true);
  ASSERT_TRUE(eventually([&] { return agent->slots[3].completion.done(); }));
  EXPECT_EQ(agent->slots[3].result, 8);
  EXPECT_TRUE(runner->wait(agent->slots[3].completion, base::kNever));
}

TEST_F(AgentRunnerTest, AWaiterDrivesWithoutWakingAnybody) {
  start();
  ASSERT_TRUE(eventually([&] { return bell.armed(); }));
  const auto before = runner->counters();
  for (std::size_t i = 0; i < kSlots; ++i) {
    lay(i, 1);
    runner->notify(false);
    ASSERT_TRUE(runner->wait(agent->slots[i].completion, clock.after(seconds(30))));
    EXPECT_EQ(agent->slots[i].result, 2);
  }
  const auto after = runner->counters();
  EXPECT_EQ(after.background_wakeups, before.background_wakeups);
  EXPECT_EQ(after.waiter_sleeps, before.waiter_sleeps);
}

// Messages of other hosts wake no thread beside one that looks for them, and some thread once it
// has left.
TEST_F(AgentRunnerTest, DescriptorsAreWatchedWhileNobodyLooks) {
  begin();
  agent->descriptors = true;
  ASSERT_TRUE(runner->start().ok());
  for (std::size_t i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(eventually([&] { return bell.armed() && agent->rings_wanted.load(); }));
    agent->undisturbed = false;
    lay(i, 1);
    runner->notify(false);
    ASSERT_TRUE(runner->wait(agent->slots[i].completion, clock.after(seconds(30))));
    EXPECT_TRUE(eventually([&] { return agent->undisturbed.load(); }));
  }
}

// A descriptor wakes a thread while nobody looks, and tells nothing while somebody does.
TEST_F(AgentRunnerTest, ADescriptorOfTheSleepStateWakesTheBackgroundThread) {
  begin();
  const auto others = collectives::make_event_fds(1);
  ASSERT_TRUE(others.ok());
  agent->descriptors = true;
  agent->message = (**others)[0].get();
  ASSERT_TRUE(runner->start().ok());
  for (std::size_t i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(eventually([&] { return bell.armed() && agent->rings_wanted.load(); }));
    lay(i, 1);  // without a ring: only the descriptor tells of it
    ASSERT_EQ(::eventfd_write(agent->message, 1), 0);
    ASSERT_TRUE(eventually([&] { return agent->slots[i].completion.done(); }));
    eventfd_t value = 0;
    ASSERT_EQ(::eventfd_read(agent->message, &value), 0);
  }
  EXPECT_EQ(agent->events.load(), 0);  // the agent is not told of it
  runner->stop();                      // before the descriptor is closed
}

TEST_F(AgentRunnerTest, AWaitEndsAtItsDeadline) {
  start();
  const base::Instant begin_at = clock.now();
  EXPECT_FALSE(runner->wait(agent->slots[0].completion, clock.after(milliseconds(30))));
  EXPECT_GE(clock.now() - begin_at, milliseconds(30));
  EXPECT_FALSE(runner->wait(agent->slots[0].completion, base::Instant(0)));
  lay(0, 1);
  runner->notify(false);
  // wait() looks once even if the deadline has passed already.
  EXPECT_TRUE(runner->wait(agent->slots[0].completion, base::Instant(0)));
}

TEST_F(AgentRunnerTest, PollsWhatRingsNobody) {
  AgentRunner::Options options;
  options.spin = base::Nanoseconds(0);
  options.yield = base::Nanoseconds(0);
  start(options);
  for (std::size_t i = 0; i < 8; ++i) {
    agent->slots[i].silent.store(true, std::memory_order_release);
    runner->notify(i % 2 == 0);
    std::thread device([&, i] {
      std::this_thread::sleep_for(milliseconds(3));
      lay(i, 5);
    });
    EXPECT_TRUE(runner->wait(agent->slots[i].completion, clock.after(seconds(30))));
    device.join();
  }
}

// A thread asks for rings before it sleeps while work is in flight, and stops asking once the work
// goes on, because a ring then only costs time.
TEST_F(AgentRunnerTest, AsksForRingsWhileItSleepsAndNoLonger) {
  AgentRunner::Options options;
  options.spin = base::Nanoseconds(0);
  options.waiter_yield = base::Nanoseconds(0);
  options.yield = base::Nanoseconds(0);
  start(options);
  for (std::size_t i = 0; i < 8; ++i) {
    agent->slots[i].silent.store(true, std::memory_order_release);
    runner->notify(true);
    ASSERT_TRUE(eventually([&] { return agent->rings_wanted.load(); }));
    lay(i, 5);
    if (i % 2 == 0) {
      EXPECT_TRUE(runner->wait(agent->slots[i].completion, clock.after(seconds(30))));
    } else {
      ASSERT_TRUE(eventually([&] { return agent->slots[i].completion.done(); }));
    }
    ASSERT_TRUE(eventually([&] { return !agent->rings_wanted.load(); }));
  }
}

TEST_F(AgentRunnerTest, ATimerWakesTheBackgroundThread) {
  begin();
  agent->timer = clock.after(milliseconds(50));
  ASSERT_TRUE(runner->start().ok());
  EXPECT_TRUE(eventually([&] { return agent->timer_fired.load(); }));
}

// A timer that a driver set while the background thread slept without one.
TEST_F(AgentRunnerTest, ATimerOfADriverWakesTheBackgroundThread) {
  begin();
  agent->timer_after_first = milliseconds(50);
  ASSERT_TRUE(runner->start().ok());
  ASSERT_TRUE(eventually([&] { return bell.armed(); }));
  lay(0, 1);
  runner->notify(false);
  EXPECT_TRUE(runner->wait(agent->slots[0].completion, clock.after(seconds(30))));
  EXPECT_TRUE(eventually([&] { return agent->timer_fired.load(); }));
}

TEST_F(AgentRunnerTest, AnIdleEngineSleeps) {
  start();
  ASSERT_TRUE(eventually([&] { return bell.armed(); }));
  const int looks = agent->looks();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(agent->looks(), looks);
}

TEST_F(AgentRunnerTest, AWatchedDescriptorIsReportedOnce) {
  start();
  auto fd = collectives::make_event_fd();
  ASSERT_TRUE(fd.ok());
  ASSERT_TRUE(runner->watch(fd->get()).ok());
  const int looks = agent->looks();
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(fd->get(), &one, sizeof one), 8);
  ASSERT_TRUE(eventually([&] { return agent->event.load() == fd->get(); }));
  ASSERT_TRUE(eventually([&] { return agent->looks() > looks; }));
  // The descriptor stays readable, which must not make the thread spin before it is watched again.
  std::this_thread::sleep_for(milliseconds(20));
  const auto wakeups = runner->counters().background_wakeups;
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_LE(runner->counters().background_wakeups, wakeups + 1);
  agent->event.store(-1);
  ASSERT_TRUE(runner->watch(fd->get()).ok());
  ASSERT_TRUE(eventually([&] { return agent->event.load() == fd->get(); }));
}

TEST_F(AgentRunnerTest, ALeavingDriverHandsTheRoleToAWaiter) {
  AgentRunner::Options options;
  options.spin = seconds(5);
  start(options);
  // The first waiter drives, until it has left; the second sleeps and must be granted the role.
  std::atomic<bool> left{false};
  std::thread first([&] {
    EXPECT_FALSE(runner->wait(agent->slots[0].completion, clock.after(milliseconds(300))));
    left = true;
  });
  ASSERT_TRUE(eventually([&] { return agent->looks() > 1000 || left; }));
  std::thread second(
      [&] { EXPECT_TRUE(runner->wait(agent->slots[1].completion, clock.after(seconds(30)))); });
  first.join();
  lay(1, 1);
  bell.ring();
  second.join();
}

TEST_F(AgentRunnerTest, ManyMayWaitForOneWork) {
  start();
  std::vector<std::thread> waiters;
  for (int i = 0; i < 6; ++i) {
    waiters.emplace_back([&] {
      EXPECT_TRUE(runner->wait(agent->slots[0].completion, clock.after(seconds(30))));
      EXPECT_EQ(agent->slots[0].result, 43);
    });
  }
  ASSERT_TRUE(eventually([&] { return runner->counters().waiter_sleeps >= 5; }));
  lay(0, 42);
  bell.ring();
  for (std::thread& waiter : waiters) waiter.join();
}

TEST_F(AgentRunnerTest, StopsAndStopsAgain) {
  start();
  runner->stop();
  runner->stop();
  begin();
  runner->stop();  // never started
}

// Many waiters, posters, deadlines and dropped works at once. The parameter: more ranks than cores.
TEST_P(AgentRunnerTest, ManyThreadsAtOnce) {
  constexpr int kRounds = 60;
  std::mt19937 random(17);
  for (int round = 0; round < kRounds; ++round) {
    AgentRunner::Options options;
    options.oversubscribed = GetParam();
    options.spin = microseconds(round % 3 == 0 ? 0 : 5 * (round % 5));
    options.yield = microseconds(round % 2 == 0 ? 0 : 20);
    begin(options);
    agent->one_at_a_time = round % 2 == 1;
    ASSERT_TRUE(runner->start().ok());
    constexpr std::size_t kThreads = 4;
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      const auto seed = static_cast<std::uint32_t>(random());
      threads.emplace_back([&, t, seed] {  // posters of other processes
        std::mt19937 own(seed);
        for (std::size_t i = t; i < kSlots; i += 2 * kThreads) {
          if (own() % 4 == 0) std::this_thread::sleep_for(microseconds(own() % 60));
          lay(i, static_cast<int>(i));
          bell.ring();
        }
      });
      threads.emplace_back([&, t, seed] {  // waiters; the other half of the works is their own
        std::mt19937 own(seed + 1);
        for (std::size_t i = t; i < kSlots; i += kThreads) {
          ToyAgent::Slot& slot = agent->slots[i];
          const bool mine = i % (2 * kThreads) >= kThreads;
          const bool waits = own() % 8 != 0;  // else it drops the work
          if (mine) {
            lay(i, static_cast<int>(i));
            runner->notify(!waits || own() % 2 == 0);
          }
          if (!waits) continue;
          if (own() % 4 == 0 &&
              !runner->wait(slot.completion, clock.after(microseconds(own() % 40)))) {
            continue;
          }
          ASSERT_TRUE(runner->wait(slot.completion, clock.after(seconds(60))));
          EXPECT_EQ(slot.result, static_cast<int>(i) + 1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    // Dropped works are done too, by the background thread.
    for (ToyAgent::Slot& slot : agent->slots) {
      ASSERT_TRUE(eventually([&] { return slot.completion.done(); }));
    }
    ASSERT_TRUE(eventually([&] { return bell.armed(); }));
    runner->stop();
  }
}

INSTANTIATE_TEST_SUITE_P(Cores, AgentRunnerTest, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "TooFew" : "Enough"; });

}  // namespace
}  // namespace ronde::runtime
