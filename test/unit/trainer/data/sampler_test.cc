// SPDX-License-Identifier: Apache-2.0
// Parts and orders, and the generator behind them, over all small cases.
#include "bindings/trainer/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include "bindings/trainer/tensor/random.h"

namespace ronde::trainer {
namespace {

TEST(PartOf, PartsAreContiguousCompleteAndEven) {
  for (std::size_t size = 0; size <= 20; ++size) {
    for (std::size_t ranks = 1; ranks <= 24; ++ranks) {
      std::size_t next = 5;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Range part = part_of({5, 5 + size}, rank, ranks);
        EXPECT_EQ(part.first, next);
        EXPECT_GE(part.size(), size / ranks);
        EXPECT_LE(part.size(), size / ranks + 1);
        next = part.last;
      }
      EXPECT_EQ(next, 5 + size);
    }
  }
}

std::vector<int> shuffled(std::size_t count, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<int> items(count);
  std::iota(items.begin(), items.end(), 0);
  shuffle(std::span(items), seed, epoch);
  return items;
}

TEST(Shuffle, IsAPermutationThatDependsOnSeedAndEpochAlone) {
  for (std::size_t count = 0; count <= 20; ++count) {
    std::vector<int> items = shuffled(count, 3, 0);
    std::ranges::sort(items);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(items[i], static_cast<int>(i));
  }
  EXPECT_EQ(shuffled(100, 1, 0), shuffled(100, 1, 0));
  EXPECT_NE(shuffled(100, 1, 0), shuffled(100, 2, 0));
  EXPECT_NE(shuffled(100, 1, 0), shuffled(100, 1, 1));
  EXPECT_NE(shuffled(100, 1, 2), shuffled(100, 2, 1));
  // Pinned: with another order, seeds would mean other batches than before.
  EXPECT_THAT(shuffled(6, 1, 0), testing::ElementsAre(0, 3, 1, 4, 5, 2));
}

TEST(Generator, IsTheSameEverywhere) {
  // Pinned: with another value, seeds would mean other weights and other batches than before.
  Generator generator(1, 2);
  const std::uint64_t first = generator.next();
  EXPECT_EQ(first, Generator(1, 2).next());
  EXPECT_NE(first, Generator(2, 1).next());
  EXPECT_EQ(first, 0x261966CD87985851U);
}

TEST(Generator, BelowIsInRangeAndReachesAll) {
  Generator generator(9);
  for (std::uint64_t bound = 1; bound <= 10; ++bound) {
    std::set<std::uint64_t> seen;
    for (int i = 0; i < 500; ++i) seen.insert(generator.below(bound));
    EXPECT_EQ(seen.size(), bound);
    EXPECT_EQ(*seen.rbegin(), bound - 1);
  }
  // Nearly every second value has to be drawn again here.
  constexpr std::uint64_t kAwkward = (std::uint64_t{1} << 63) + 1;
  for (int i = 0; i < 100; ++i) EXPECT_LT(generator.below(kAwkward), kAwkward);
}

TEST(Generator, UniformFillsItsInterval) {
  Generator generator(4);
  double sum = 0.0;
  for (int i = 0; i < 10'000; ++i) {
    const float value = generator.uniform(2.0F, 4.0F);
    EXPECT_GE(value, 2.0F);
    EXPECT_LT(value, 4.0F);
    sum += value;
  }
  EXPECT_NEAR(sum / 10'000, 3.0, 0.03);
}

}  // namespace
}  // namespace ronde::trainer
