// SPDX-License-Identifier: Apache-2.0
// Doorbells: ringing makes a system call only for a sleeper, and no ring is ever missed.
#include "collectives/board/doorbell.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "test/unit/collectives/board/sleeper.h"

namespace ronde::collectives {

using base::FileDescriptor;

namespace {

struct Bell {
  DoorbellWords words;
  FileDescriptor fd = std::move(*make_event_fd());
  Doorbell doorbell{&words, fd.get()};
};

TEST(Doorbell, WordsHaveTheirOwnCacheLines) {
  EXPECT_EQ(alignof(DoorbellWords), kCacheLinePair);
  EXPECT_EQ(sizeof(DoorbellWords), kCacheLinePair);
}

TEST(Doorbell, RingWritesTheEventFdOnlyForASleeper) {
  const Bell bell;
  bell.doorbell.ring();
  EXPECT_EQ(bell.doorbell.rings(), 1U);
  EXPECT_FALSE(readable(bell.doorbell));

  bell.doorbell.arm();
  EXPECT_TRUE(bell.doorbell.armed());
  bell.doorbell.ring();
  EXPECT_TRUE(readable(bell.doorbell));
  EXPECT_FALSE(bell.doorbell.armed()) << "one write per sleep";
  bell.doorbell.drain();
  EXPECT_FALSE(readable(bell.doorbell));
  bell.doorbell.ring();
  EXPECT_FALSE(readable(bell.doorbell));
  EXPECT_EQ(bell.doorbell.rings(), 3U);
}

TEST(Doorbell, DisarmSilencesAndWakeAlwaysWakes) {
  const Bell bell;
  bell.doorbell.arm();
  bell.doorbell.disarm();
  bell.doorbell.ring();
  EXPECT_FALSE(readable(bell.doorbell));
  bell.doorbell.wake();
  EXPECT_TRUE(readable(bell.doorbell));
  bell.doorbell.drain();
  bell.doorbell.drain();  // nothing there: must not block
}

TEST(Doorbell, AnEmptyOneRingsNobody) {
  const Doorbell nobody;
  nobody.ring();
  nobody.arm();
  EXPECT_EQ(nobody.rings(), 0U);
  EXPECT_FALSE(nobody.armed());
}

// Two threads ring each other in turn. Each sleeps as soon as it has nothing to do, so that one
// arms while the other rings at every possible moment.
TEST(Doorbell, NoWakeUpIsLostInAPingPong) {
  constexpr int kRounds = 200000;
  const Bell ping;
  const Bell pong;
  bool peer_woken = true;
  std::thread peer([&] {
    for (std::uint64_t round = 0; round < kRounds && peer_woken; ++round) {
      while (ping.doorbell.rings() == round && peer_woken) {
        peer_woken = sleep_until_rung(ping.doorbell, round);
      }
      pong.doorbell.ring();
    }
  });
  bool woken = true;
  for (std::uint64_t round = 0; round < kRounds && woken; ++round) {
    ping.doorbell.ring();
    while (pong.doorbell.rings() == round && woken) {
      woken = sleep_until_rung(pong.doorbell, round);
    }
  }
  peer.join();
  EXPECT_TRUE(woken);
  EXPECT_TRUE(peer_woken);
}

// The poster is always awake and rings a little after the sleeper began to arm, after varying
// delays.
TEST(Doorbell, NoWakeUpIsLostWhenRungWhileArming) {
  constexpr std::uint64_t kRounds = 200000;
  const Bell bell;
  std::atomic<std::uint64_t> turn{0};
  std::atomic<bool> stop{false};
  std::thread poster([&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      while (turn.load() != round) {
        if (stop.load()) return;
      }
      // A delay that the compiler cannot remove.
      for (std::uint64_t pause = round % 64; pause > 0; --pause) (void)stop.load();
      bell.doorbell.ring();
    }
  });
  bool woken = true;
  for (std::uint64_t round = 1; round <= kRounds && woken; ++round) {
    turn.store(round);
    while (bell.doorbell.rings() != round && woken) {
      woken = sleep_until_rung(bell.doorbell, round - 1);
    }
  }
  stop.store(true);
  poster.join();
  EXPECT_TRUE(woken);
}

TEST(Doorbell, NoWakeUpIsLostWithManyPosters) {
  constexpr int kPosters = 4;
  constexpr std::uint64_t kEach = 50000;
  const Bell bell;
  std::vector<std::thread> posters;
  for (int i = 0; i < kPosters; ++i) {
    posters.emplace_back([&] {
      for (std::uint64_t n = 0; n < kEach; ++n) {
        bell.doorbell.ring();
        if (n % 64 == 0) std::this_thread::yield();  // lets the sleeper fall asleep
      }
    });
  }
  std::uint64_t seen = 0;
  bool woken = true;
  while (seen < kPosters * kEach && woken) {
    const std::uint64_t now = bell.doorbell.rings();
    if (now == seen) woken = sleep_until_rung(bell.doorbell, seen);
    seen = now;
  }
  for (auto& poster : posters) poster.join();
  EXPECT_TRUE(woken);
}

TEST(Doorbell, WakesAnotherProcess) {
  void* shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* words = new (shared) DoorbellWords;
  const FileDescriptor fd = std::move(*make_event_fd());
  const Doorbell bell(words, fd.get());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(sleep_until_rung(bell, 0) ? 0 : 1);
  while (!bell.armed()) std::this_thread::yield();
  bell.ring();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::munmap(shared, 4096);
}

}  // namespace
}  // namespace ronde::collectives
