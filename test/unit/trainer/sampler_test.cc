// SPDX-License-Identifier: Apache-2.0
// The sampler and the generator behind it, over all small cases.
#include "bindings/trainer/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "bindings/trainer/errors.h"
#include "bindings/trainer/random.h"

namespace ronde::trainer {
namespace {

std::vector<std::uint32_t> copy(std::span<const std::uint32_t> samples) {
  return {samples.begin(), samples.end()};
}

TEST(PartOf, PartsAreContiguousCompleteAndEven) {
  for (std::size_t size = 0; size <= 20; ++size) {
    for (int ranks = 1; ranks <= 24; ++ranks) {
      std::size_t next = 5;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range part = part_of({5, 5 + size}, rank, ranks);
        EXPECT_EQ(part.first, next);
        EXPECT_GE(part.size(), size / static_cast<std::size_t>(ranks));
        EXPECT_LE(part.size(), size / static_cast<std::size_t>(ranks) + 1);
        next = part.last;
      }
      EXPECT_EQ(next, 5 + size);
    }
  }
}

TEST(EpochSampler, EveryEpochIsAPermutationCutIntoBatches) {
  for (std::size_t samples = 0; samples <= 12; ++samples) {
    for (std::size_t batch = 1; batch <= 14; ++batch) {
      const EpochSampler sampler(samples, batch, 3, 0);
      EXPECT_EQ(sampler.batches(), (samples + batch - 1) / batch);
      std::set<std::uint32_t> seen;
      std::size_t total = 0;
      for (std::size_t k = 0; k < sampler.batches(); ++k) {
        const auto part = sampler.batch(k);
        EXPECT_EQ(part.size(), k + 1 < sampler.batches() ? batch : samples - k * batch);
        seen.insert(part.begin(), part.end());
        total += part.size();
      }
      EXPECT_EQ(total, samples);
      EXPECT_EQ(seen.size(), samples);
      EXPECT_TRUE(seen.empty() || *seen.rbegin() == samples - 1);
    }
  }
}

TEST(EpochSampler, ABatchHoldsTheSameSamplesForEveryNumberOfRanks) {
  const EpochSampler sampler(23, 7, 3, 1);
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (std::size_t k = 0; k < sampler.batches(); ++k) {
      std::vector<std::uint32_t> all;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto part = sampler.batch(k, rank, ranks);
        all.insert(all.end(), part.begin(), part.end());
      }
      EXPECT_EQ(all, copy(sampler.batch(k))) << ranks << " ranks, batch " << k;
    }
  }
}

TEST(EpochSampler, TheOrderDependsOnSeedAndEpochAlone) {
  const auto order = [](std::uint64_t seed, std::uint64_t epoch, std::size_t batch) {
    const EpochSampler sampler(100, batch, seed, epoch);
    std::vector<std::uint32_t> all;
    for (std::size_t k = 0; k < sampler.batches(); ++k) {
      const auto part = sampler.batch(k);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  EXPECT_EQ(order(1, 0, 10), order(1, 0, 7));
  EXPECT_NE(order(1, 0, 10), order(2, 0, 10));
  EXPECT_NE(order(1, 0, 10), order(1, 1, 10));
  EXPECT_NE(order(1, 2, 10), order(2, 1, 10));
}

TEST(EpochSampler, RejectsABatchOfZero) { EXPECT_THROW(EpochSampler(5, 0, 1, 0), TrainerError); }

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
