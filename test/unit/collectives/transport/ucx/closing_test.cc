// SPDX-License-Identifier: Apache-2.0
// Ends that close, in every order, wait for no answer that will not come. Over shared memory none
// of them notices that another one of its process has gone.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "test/support/transport_contract.h"
#include "test/unit/collectives/transport/ucx/ends.h"

namespace ronde::collectives::ucx {
namespace {

constexpr base::Nanoseconds kPatience = std::chrono::seconds(60);

struct SharedMemory {
  ScopedVariable transports{"UCX_TLS", "posix,self"};
  ScopedVariable errors{"UCX_MM_ERROR_HANDLING", "y"};
};

void leave(std::unique_ptr<OpenEnd>& end) {
  const base::SteadyClock clock;
  end->end->say_good_bye(clock, clock.after(kPatience));
  end.reset();
}

void meet(std::vector<std::unique_ptr<OpenEnd>>& ends) {
  std::thread other([&] { TransportContract(*ends[1]->transport).meet(1); });
  TransportContract(*ends[0]->transport).meet(1);
  other.join();
}

// The first end has left when the second one begins to close.
void close_one_after_the_other(std::vector<std::unique_ptr<OpenEnd>>& ends) {
  const base::SteadyClock clock;
  const base::Instant begin = clock.now();
  std::atomic<bool> gone = false;
  std::thread first([&] {
    leave(ends[0]);
    gone = true;
  });
  while (!gone) {
    ends[1]->end->progress();
    std::this_thread::yield();
  }
  first.join();
  leave(ends[1]);
  EXPECT_LT(clock.now() - begin, kPatience) << "an end waited for an answer";
}

TEST(UcxClosing, ARankThatHasLeftIsNotAskedForAnAnswer) {
  auto ends = connected_ends(2);
  meet(ends);
  close_one_after_the_other(ends);
}

TEST(UcxClosing, NorOverSharedMemory) {
  const SharedMemory only;
  auto ends = connected_ends(2);
  meet(ends);
  close_one_after_the_other(ends);
}

// The second end has neither sent to the first one nor asked for a message.
TEST(UcxClosing, AnEndWithoutAConnectionAnswersToo) {
  const SharedMemory only;
  auto ends = connected_ends(2);
  ASSERT_TRUE(ends[0]->transport->send(1, 2, {}).ok());
  close_one_after_the_other(ends);
}

// Two ends, of which the second one has sent more than the first one has room for. What it answers
// to a good-bye stays behind that.
class UcxClosingFull : public testing::Test {
 protected:
  void fill() {
    ends_ = connected_ends(2);
    meet(ends_);
    for (int n = 0; n < 2000; ++n) ASSERT_TRUE(ends_[1]->transport->send(0, 2, message_).ok());
    while (ends_[1]->end->progress()) {
    }
  }
  void hear_good_bye() {
    const base::Instant limit = clock_.after(kPatience);
    while (!ends_[1]->end->progress() && clock_.now() < limit) std::this_thread::yield();
  }

  const SharedMemory only_;
  const base::SteadyClock clock_;
  const TransportContract::Message message_ = TransportContract::Message(4000);
  std::vector<std::unique_ptr<OpenEnd>> ends_;
};

// The second end closes as soon as it has heard the good-bye.
TEST_F(UcxClosingFull, AnAnswerLeavesBeforeTheEndThatGivesIt) {
  ASSERT_NO_FATAL_FAILURE(fill());
  const base::Instant begin = clock_.now();
  std::thread first([&] { leave(ends_[0]); });
  hear_good_bye();
  leave(ends_[1]);
  first.join();
  EXPECT_LT(clock_.now() - begin, kPatience) << "an answer was left behind";
}

TEST_F(UcxClosingFull, AnAnswerThatCannotLeaveIsWaitedForUntilTheDeadline) {
  ASSERT_NO_FATAL_FAILURE(fill());
  ends_[0]->end->say_good_bye(clock_, clock_.now());
  hear_good_bye();
  ends_[0].reset();
  const base::Instant begin = clock_.now();
  ends_[1]->end->say_good_bye(clock_, clock_.after(std::chrono::milliseconds(300)));
  EXPECT_GE(clock_.now() - begin, std::chrono::milliseconds(300)) << "there was room";
  ends_[1].reset();
  EXPECT_LT(clock_.now() - begin, kPatience);
}

// Over TCP an end notices that the one it owes an answer has gone.
TEST(UcxClosing, NoAnswerIsOwedToAnEndThatIsLost) {
  const ScopedVariable transports("UCX_TLS", "tcp,self");
  const TransportContract::Message message(4000);
  auto ends = connected_ends(2);
  meet(ends);
  for (int n = 0; n < 20'000; ++n) ASSERT_TRUE(ends[1]->transport->send(0, 2, message).ok());
  while (ends[1]->end->progress()) {
  }
  const base::SteadyClock clock;
  const base::Instant begin = clock.now();
  ends[0]->end->say_good_bye(clock, clock.now());
  while (!ends[1]->end->progress() && clock.now() - begin < kPatience) std::this_thread::yield();
  ends[0].reset();
  leave(ends[1]);
  EXPECT_LT(clock.now() - begin, kPatience) << "an end waited for one that was lost";
}

// All say good-bye to each other at about the same time.
TEST(UcxClosing, AllMayCloseAtOnce) {
  const SharedMemory only;
  for (int round = 0; round < 3; ++round) {
    auto ends = connected_ends(5);
    const base::SteadyClock clock;
    const base::Instant begin = clock.now();
    std::vector<std::thread> threads;
    for (auto& end : ends) {
      threads.emplace_back([&end] {
        TransportContract(*end->transport).meet(1);
        leave(end);
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_LT(clock.now() - begin, kPatience) << "an end waited for an answer";
  }
}

}  // namespace
}  // namespace ronde::collectives::ucx
