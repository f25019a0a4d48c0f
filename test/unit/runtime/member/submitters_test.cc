// SPDX-License-Identifier: Apache-2.0
// Which threads make a rank stand still.
#include "runtime/member/submitters.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "test/support/eventually.h"

namespace ronde::runtime {
namespace {

using std::chrono::seconds;

constexpr base::Instant kNow = seconds(100);

// A thread that has done what it was given, and goes on when it is let go.
class Held {
 public:
  explicit Held(const std::function<void()>& body)
      : thread_([this, body] {
          body();
          ready_.set_value();
          let_go_.get_future().wait();
        }) {
    ready_.get_future().wait();
  }
  ~Held() {
    let_go_.set_value();
    thread_.join();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  std::promise<void> ready_;
  std::promise<void> let_go_;
  std::thread thread_;
};

TEST(Submitters, AreStillWhenAllOfThemWait) {
  Submitters threads;
  EXPECT_FALSE(threads.look(kNow).still) << "nobody waits";
  threads.submitted();
  EXPECT_FALSE(threads.look(kNow).still);
  {
    const Submitters::Waiting waiting(threads);
    EXPECT_TRUE(threads.look(kNow).still);
    const Held other([&] { threads.submitted(); });
    EXPECT_FALSE(threads.look(kNow).still) << "another thread may submit";
  }
  EXPECT_FALSE(threads.look(kNow).still);
  const Submitters::Waiting waiting(threads);
  EXPECT_TRUE(threads.look(kNow).still) << "that thread has ended";
}

TEST(Submitters, AThreadThatOnlyWaitsCountsWhileItDoes) {
  Submitters threads;
  {
    std::unique_ptr<Submitters::Waiting> waiting;
    const Held other([&] { waiting = std::make_unique<Submitters::Waiting>(threads); });
    EXPECT_TRUE(threads.look(kNow).still);
    waiting.reset();  // the object knows its thread
    EXPECT_FALSE(threads.look(kNow).still) << "nobody waits";
    const Submitters::Waiting own(threads);
    EXPECT_TRUE(threads.look(kNow).still) << "the other has never submitted";
  }
}

// The last four waits are known, and a slice of one is not a wait of its own.
TEST(Submitters, AWaitInSlicesCountsAsOne) {
  Submitters threads;
  const int works[2] = {};
  const auto slice = [&](base::Instant begin, int work, bool done) {
    threads.has_waited(begin, begin + std::chrono::milliseconds(100), &works[work], done);
  };
  for (int i = 0; i < 50; ++i) slice(kNow + i * std::chrono::milliseconds(101), 0, i == 49);
  EXPECT_EQ(threads.waited_since(kNow), seconds(5)) << "of 5.05 s";
  slice(kNow + seconds(10), 0, true);  // another one in the same memory
  slice(kNow + seconds(20), 1, true);
  EXPECT_EQ(threads.waited_since(kNow), std::chrono::milliseconds(5200));
  EXPECT_EQ(threads.waited_since(kNow + seconds(20)), std::chrono::milliseconds(100));
}

TEST(Submitters, AWaitInSlicesGoesOnBetweenThem) {
  Submitters threads;
  threads.submitted();
  threads.waits_until(kNow + seconds(1));
  EXPECT_TRUE(threads.look(kNow).still);
  EXPECT_FALSE(threads.look(kNow + seconds(1)).still) << "it does something else";
  threads.waits_until(kNow + seconds(3));
  EXPECT_TRUE(threads.look(kNow + seconds(1)).still);
  threads.waits_no_more();
  EXPECT_FALSE(threads.look(kNow).still);
  threads.waits_until(kNow + seconds(3));
  threads.submitted();
  EXPECT_FALSE(threads.look(kNow).still);
}

TEST(Submitters, OfAProcessSetAreThoseOfTheJobToo) {
  Submitters of_job;
  Submitters of_set(&of_job);
  of_set.submitted();
  {
    const Submitters::Waiting waiting(of_job);
    EXPECT_TRUE(of_job.look(kNow).still);
    EXPECT_FALSE(of_set.look(kNow).still) << "it may go on in the set afterwards";
    const Held other([&] { of_set.submitted(); });
    EXPECT_FALSE(of_job.look(kNow).still) << "that thread may go on";
  }
  of_set.waits_until(kNow + seconds(1));
  // The kernel may know a thread for a moment after it has been joined.
  EXPECT_TRUE(testing::eventually([&] { return of_job.look(kNow).still; }));
  of_set.waits_no_more();
  EXPECT_FALSE(of_job.look(kNow).still);
  const Submitters::Waiting waiting(of_set);
  EXPECT_TRUE(of_set.look(kNow).still && of_job.look(kNow).still);
}

TEST(Submitters, MovesTellWhetherAnythingHasHappened) {
  Submitters threads;
  threads.submitted();
  std::uint64_t before = 0;
  {
    const Submitters::Waiting waiting(threads);
    before = threads.look(kNow).moves;
    EXPECT_EQ(threads.look(kNow).moves, before);
  }
  const Submitters::Waiting waiting(threads);
  EXPECT_NE(threads.look(kNow).moves, before) << "it has ended a wait";
}

TEST(Submitters, ThreadsThatHaveEndedMakeRoom) {
  Submitters threads;
  for (int i = 0; i < 500; ++i) std::thread([&] { threads.submitted(); }).join();
  const Submitters::Waiting waiting(threads);
  EXPECT_TRUE(threads.look(kNow).still);
}

TEST(Submitters, WithMoreThanThereIsRoomForTheyAreNeverStill) {
  Submitters threads;
  {
    std::vector<std::unique_ptr<Held>> many;
    for (int i = 0; i < 70; ++i) {
      many.push_back(std::make_unique<Held>([&] { threads.submitted(); }));
    }
  }
  const Submitters::Waiting waiting(threads);
  EXPECT_FALSE(threads.look(kNow).still);
}

}  // namespace
}  // namespace ronde::runtime
