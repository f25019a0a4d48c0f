// SPDX-License-Identifier: Apache-2.0
// Batches that a thread gathers ahead: how far, what becomes of errors, and how it ends.
#include "bindings/trainer/data/prefetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "test/unit/trainer/data/numbered_data.h"

namespace ronde::trainer {
namespace {

// One number to a sample, its own; `asked` counts the samples that were made.
Dataset counted(std::atomic<std::size_t>& asked, std::size_t samples) {
  return Dataset::from_generator(
      {.shape = {1}},
      [&asked](std::uint64_t /*epoch*/, std::size_t index, const SampleRoom& room) {
        room.input[0] = static_cast<float>(index);
        ++asked;
        return true;
      },
      samples);
}

// Waits until `asked` has come to `expected` and has not changed for a while, and says where it
// stopped.
std::size_t settled(const std::atomic<std::size_t>& asked, std::size_t expected = 0) {
  for (int i = 0; i < 12'000 && asked < expected; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::size_t before = asked;
  for (int calm = 0; calm < 20; ++calm) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (asked != before) calm = 0;
    before = asked;
  }
  return before;
}

TEST(Prefetch, GivesTheSameBatchesAsWithout) {
  const Dataset data = numbered(103).shuffle(7).batch(10).shard(1, 3, 2);
  for (const std::size_t ahead : {1U, 2U, 50U}) {
    EXPECT_EQ(parts_of(data.prefetch(ahead), 4), parts_of(data, 4));
  }
}

TEST(Prefetch, GoesSoFarAheadOfASlowConsumerAndNoFarther) {
  std::atomic<std::size_t> asked = 0;
  Epoch epoch = counted(asked, 100).batch(5).prefetch(3).epoch(0);
  const StepBatch* lent = epoch.next();
  EXPECT_EQ(settled(asked, 4U * 5U), 4U * 5U);  // the one that is lent, and three
  EXPECT_EQ(lent->parts[0].samples, up_to(5));
  EXPECT_EQ(lent->parts[0].inputs[4], 4.0F);
  EXPECT_EQ(epoch.next()->step, 1U);
  EXPECT_EQ(settled(asked, 5U * 5U), 5U * 5U);
}

TEST(Prefetch, UsesTheMemoryOfBatchesAgain) {
  Epoch epoch = numbered(1000).batch(10).prefetch(2).epoch(0);
  std::set<const float*> memory;
  while (const StepBatch* batch = epoch.next()) memory.insert(batch->parts[0].inputs.data());
  EXPECT_EQ(memory.size(), 3U);
}

TEST(Prefetch, AnErrorComesOutAfterTheBatchesBeforeItAndStays) {
  const auto sixth_fails = [](std::uint64_t /*epoch*/, std::size_t index, const SampleRoom& room) {
    room.input[0] = 1.0F;
    if (index == 5) throw std::out_of_range("no such picture");
    return true;
  };
  for (const std::size_t ahead : {0U, 1U, 4U}) {
    Epoch epoch =
        Dataset::from_generator({.shape = {1}}, sixth_fails, 9).batch(2).prefetch(ahead).epoch(0);
    EXPECT_EQ(epoch.next()->step, 0U);
    EXPECT_EQ(epoch.next()->step, 1U);
    for (int again = 0; again < 3; ++again) EXPECT_THROW(epoch.next(), std::out_of_range);
  }
}

TEST(Prefetch, TheEndStays) {
  Epoch epoch = numbered(3).batch(2).prefetch(2).epoch(0);
  EXPECT_NE(epoch.next(), nullptr);
  EXPECT_NE(epoch.next(), nullptr);
  for (int again = 0; again < 3; ++again) EXPECT_EQ(epoch.next(), nullptr);
}

TEST(Prefetch, EndsInTheMiddleOfABatch) {
  constexpr std::size_t kBatch = 10'000;  // takes ten seconds
  for (const bool known : {true, false}) {
    std::atomic<std::size_t> asked = 0;
    const auto slow = [&asked](std::uint64_t /*epoch*/, std::size_t /*index*/, const SampleRoom&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++asked;
      return true;
    };
    const std::optional<std::size_t> size = known ? std::optional(2 * kBatch) : std::nullopt;
    const Dataset data =
        Dataset::from_generator({.shape = {1}}, slow, size).batch(kBatch).prefetch(1);
    {
      const Epoch never_asked = data.epoch(0);
      while (asked == 0) std::this_thread::yield();
    }
    EXPECT_LT(asked, kBatch) << known;
    asked = 0;
    {
      const Epoch skipping = data.epoch(0, 1);
      while (asked == 0) std::this_thread::yield();
    }
    EXPECT_LT(asked, kBatch) << known;
  }
}

TEST(Prefetch, EndsWhileItWaitsAndAfterAMove) {
  std::atomic<std::size_t> asked = 0;
  for (std::size_t taken = 0; taken < 8; ++taken) {
    Epoch epoch = counted(asked, 100).batch(5).prefetch(2).epoch(0);
    for (std::size_t i = 0; i < taken; ++i) epoch.next();
    if (taken % 2 == 0) settled(asked);  // the thread waits for room
    Epoch moved = std::move(epoch);
    EXPECT_EQ(moved.next()->step, taken);
  }
}

}  // namespace
}  // namespace ronde::trainer
