// SPDX-License-Identifier: Apache-2.0
// The annotated mutex excludes, and its lock lets go at the end of its scope.
#include "base/mutex.h"

#include <gtest/gtest.h>

#include <cstdint>
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

struct Pair {
  void write(int times) RONDE_EXCLUDES(mutex) {
    for (int i = 0; i < times; ++i) {
      const WriterLock lock(mutex);
      ++first;
      ++second;
    }
  }
  bool equal() RONDE_EXCLUDES(mutex) {
    const ReaderLock lock(mutex);
    return first == second;
  }
  SharedMutex mutex;
  std::int64_t first RONDE_GUARDED_BY(mutex) = 0;
  std::int64_t second RONDE_GUARDED_BY(mutex) = 0;
};

TEST(SharedMutex, WritersAreAlone) {
  constexpr int kTimes = 5'000;
  Pair pair;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { pair.write(kTimes); });
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int look = 0; look < kTimes; ++look) ASSERT_TRUE(pair.equal());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const WriterLock lock(pair.mutex);
  EXPECT_EQ(pair.first, std::int64_t{2} * kTimes);
}

TEST(SharedMutex, ReadersShareIt) {
  SharedMutex mutex;
  const ReaderLock lock(mutex);
  std::thread([&] { const ReaderLock other(mutex); }).join();  // would never return
}

static_assert(!std::is_copy_constructible_v<MutexLock>);
static_assert(!std::is_copy_assignable_v<MutexLock>);
static_assert(!std::is_copy_constructible_v<Mutex>);

}  // namespace
}  // namespace ronde::base
