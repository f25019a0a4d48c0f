// SPDX-License-Identifier: Apache-2.0
// The annotated mutex excludes, and its lock lets go at the end of its scope.
#include "base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <type_traits>
#include <vector>

namespace ronde::base {
namespace {

struct Counter {
  void add(int times) RONDE_EXCLUDES(mutex) {
    for (int i = 0; i < times; ++i) {
      const MutexLock lock(mutex);
      ++value;
    }
  }
  Mutex mutex;
  std::int64_t value RONDE_GUARDED_BY(mutex) = 0;
};

// Without exclusion additions are lost, and the thread sanitizer sees the race.
TEST(Mutex, OnlyOneThreadAtATime) {
  constexpr int kThreads = 4;
  constexpr int kTimes = 20'000;
  Counter counter;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&] { counter.add(kTimes); });
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(counter.mutex);
  EXPECT_EQ(counter.value, std::int64_t{kThreads} * kTimes);
}

TEST(Mutex, ALockLetsGoAtTheEndOfItsScope) {
  Mutex mutex;
  { const MutexLock lock(mutex); }
  mutex.lock();  // would never return
  mutex.unlock();
}

static_assert(!std::is_copy_constructible_v<MutexLock>);
static_assert(!std::is_copy_assignable_v<MutexLock>);
static_assert(!std::is_copy_constructible_v<Mutex>);

}  // namespace
}  // namespace ronde::base
