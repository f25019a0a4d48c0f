// SPDX-License-Identifier: Apache-2.0
#include "fusion/batching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

namespace ronde::fusion {
namespace {

using base::Bytes;
using Indices = std::vector<std::size_t>;

Candidate candidate(std::uint64_t key, std::int64_t bytes, std::int32_t priority = 0) {
  return {.id = 0, .key = key, .bytes = Bytes(bytes), .priority = priority};
}

TEST(Batching, NothingReadyGivesNothing) { EXPECT_TRUE(next_batch({}, Bytes(100)).empty()); }

TEST(Batching, ReadinessOrderAmongEquals) {
  const std::vector<Candidate> ready{candidate(1, 10), candidate(1, 20), candidate(1, 30)};
  EXPECT_EQ(next_batch(ready, Bytes(60)), (Indices{0, 1, 2}));
}

TEST(Batching, ReadinessOrderAmongManyEquals) {
  // Many: a sort that is not stable keeps a few in order by luck.
  const std::vector<Candidate> ready(200, candidate(1, 1, 3));
  Indices in_order(ready.size());
  std::iota(in_order.begin(), in_order.end(), std::size_t{0});
  EXPECT_EQ(next_batch(ready, Bytes(200)), in_order);
}

TEST(Batching, HigherPriorityFirst) {
  const std::vector<Candidate> ready{candidate(1, 10, 0), candidate(1, 10, 5), candidate(1, 10, -1),
                                     candidate(1, 10, 5)};
  EXPECT_EQ(next_batch(ready, Bytes(100)), (Indices{1, 3, 0, 2}));
}

TEST(Batching, LooksPastOtherKeysAndWhatDoesNotFit) {
  const std::vector<Candidate> ready{candidate(1, 10), candidate(2, 10), candidate(1, 95),
                                     candidate(1, 20)};
  EXPECT_EQ(next_batch(ready, Bytes(100)), (Indices{0, 3}));
}

TEST(Batching, KeyZeroNeverFuses) {
  const std::vector<Candidate> ready{candidate(0, 10), candidate(0, 10)};
  EXPECT_EQ(next_batch(ready, Bytes(100)), (Indices{0}));
}

TEST(Batching, ATensorAboveTheLimitGoesAlone) {
  const std::vector<Candidate> ready{candidate(1, 101), candidate(1, 0), candidate(1, 1)};
  EXPECT_EQ(next_batch(ready, Bytes(100)), (Indices{0}));
}

TEST(Batching, AnExactFitFits) {
  const std::vector<Candidate> ready{candidate(1, 40), candidate(1, 60), candidate(1, 0)};
  EXPECT_EQ(next_batch(ready, Bytes(100)), (Indices{0, 1, 2}));
}

// The rule, stated as properties of the answer.
void check_rule(const std::vector<Candidate>& ready, Bytes limit) {
  const Indices batch = next_batch(ready, limit);
  ASSERT_FALSE(batch.empty());
  ASSERT_EQ(std::set<std::size_t>(batch.begin(), batch.end()).size(), batch.size()) << "twice";

  const auto before = [&](std::size_t a, std::size_t b) {
    return ready[a].priority != ready[b].priority ? ready[a].priority > ready[b].priority : a < b;
  };
  ASSERT_TRUE(std::is_sorted(batch.begin(), batch.end(), before));
  for (std::size_t i = 0; i < ready.size(); ++i) ASSERT_FALSE(before(i, batch[0])) << "not first";

  Bytes sum;
  for (const std::size_t index : batch) {
    sum += ready[index].bytes;
    ASSERT_EQ(ready[index].key, ready[batch[0]].key);
  }
  if (batch.size() > 1) {
    ASSERT_LE(sum.value(), limit.value());
    ASSERT_NE(ready[batch[0]].key, 0U);
  }
  // Whoever was left out had a reason: another key, or no room at its turn.
  for (std::size_t i = 0; i < ready.size(); ++i) {
    if (std::find(batch.begin(), batch.end(), i) != batch.end()) continue;
    if (ready[i].key == 0 || ready[i].key != ready[batch[0]].key) continue;
    Bytes sum_at_its_turn;
    for (const std::size_t index : batch) {
      if (before(index, i)) sum_at_its_turn += ready[index].bytes;
    }
    ASSERT_GT((sum_at_its_turn + ready[i].bytes).value(), limit.value());
  }
}

TEST(Batching, AllSmallCases) {
  // Up to 4 candidates, each with one of 3 keys, 4 sizes and 2 priorities.
  constexpr std::size_t kKinds = 24;
  for (std::size_t count = 1; count <= 4; ++count) {
    std::size_t cases = 1;
    for (std::size_t i = 0; i < count; ++i) cases *= kKinds;
    for (std::size_t which = 0; which < cases; ++which) {
      std::vector<Candidate> ready;
      for (std::size_t i = 0, rest = which; i < count; ++i, rest /= kKinds) {
        const std::size_t kind = rest % kKinds;
        ready.push_back(candidate(kind % 3, static_cast<std::int64_t>(kind / 3 % 4),
                                  static_cast<std::int32_t>(kind / 12)));
      }
      for (const std::int64_t limit : {0, 2, 4}) check_rule(ready, Bytes(limit));
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "case " << which << " of " << count;
    }
  }
}

TEST(Batching, NothingIsLostUntilAllIsTaken) {
  std::vector<Candidate> ready;
  for (std::uint64_t id = 0; id < 200; ++id) {
    ready.push_back({id, id * 7 % 4, Bytes(static_cast<std::int64_t>(id * 13 % 50)),
                     static_cast<std::int32_t>(id * 5 % 3)});
  }
  std::set<std::uint64_t> taken;
  while (!ready.empty()) {
    Indices batch = next_batch(ready, Bytes(64));
    ASSERT_FALSE(batch.empty());
    for (const std::size_t index : batch) ASSERT_TRUE(taken.insert(ready[index].id).second);
    std::sort(batch.rbegin(), batch.rend());
    for (const std::size_t index : batch) {
      ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }
  EXPECT_EQ(taken.size(), 200U);
}

}  // namespace
}  // namespace ronde::fusion
