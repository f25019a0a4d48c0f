// SPDX-License-Identifier: Apache-2.0
#include "fusion/batching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace ronde::fusion {
namespace {

using base::Bytes;
using Indices = std::vector<std::size_t>;
using Queues = ReadyQueues<std::uint64_t, std::size_t>;

struct Candidate {
  std::uint64_t id = 0;
  std::uint64_t key = 0;  // 0 fuses with nothing
  Bytes bytes;
  std::int32_t priority = 0;
  bool of_device = false;
};

void push(Queues& queues, const Candidate& candidate, std::size_t item) {
  Queues::Kind kind{candidate.of_device, std::nullopt, candidate.priority};
  if (candidate.key != 0) kind.fuses_with = candidate.key;
  queues.push(kind, candidate.bytes, item);
}

// The first batch of these, which become ready in this order: indices into them.
Indices next_batch(const std::vector<Candidate>& ready, Bytes limit) {
  Queues queues;
  for (std::size_t i = 0; i < ready.size(); ++i) push(queues, ready[i], i);
  return queues.take(limit, false);
}

// The rule once more, as a walk over all that is ready.
Indices walked(const std::vector<Candidate>& ready, Bytes limit, bool hold_devices) {
  Indices order;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    if (!hold_devices || !ready[i].of_device) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ready[a].priority > ready[b].priority;
  });
  if (order.empty()) return {};
  const Candidate& first = ready[order.front()];
  if (first.key == 0 || first.bytes > limit) return {order.front()};
  Indices batch;
  Bytes sum;
  for (const std::size_t index : order) {
    const Candidate& each = ready[index];
    if (each.key != first.key || each.of_device != first.of_device) continue;
    if (each.bytes > limit - sum) continue;
    sum += each.bytes;
    batch.push_back(index);
  }
  return batch;
}

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

// Tensors become ready between batches, with devices held back now and then: the queues give the
// batches that a walk over everything gives.
TEST(Batching, AnyOrderOfPushesAndBatchesFollowsTheRule) {
  std::mt19937_64 random(17);
  const auto draw = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    Queues queues;
    std::vector<Candidate> ready;
    const std::int64_t keys = draw(3);
    const std::int64_t priorities = draw(4);
    const Bytes limit(draw(40));
    for (int action = 0; action < 60; ++action) {
      if (draw(2) != 0) {
        Candidate next{ready.size(), static_cast<std::uint64_t>(draw(keys)), Bytes(draw(20)),
                       static_cast<std::int32_t>(draw(priorities)), draw(3) == 0};
        next.id = static_cast<std::uint64_t>(round * 1000 + action);
        push(queues, next, static_cast<std::size_t>(next.id));
        ready.push_back(next);
        continue;
      }
      const bool hold = draw(3) == 0;
      Indices expected = walked(ready, limit, hold);
      ASSERT_EQ(queues.any(hold), !expected.empty());
      Indices ids;
      for (const std::size_t index : expected) ids.push_back(ready[index].id);
      ASSERT_EQ(queues.take(limit, hold), ids) << "round " << round;
      std::sort(expected.rbegin(), expected.rend());
      for (const std::size_t index : expected) {
        ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(index));
      }
      ASSERT_EQ(queues.empty(), ready.empty());
    }
  }
}

// A batch of what does not fuse touches none of the others that wait.
TEST(Batching, R13ATensorThatDoesNotFuseLeavesTheOthersAlone) {
  struct Counted {
    explicit Counted(int number, int& moves) : number_(number), moves_(&moves) {}
    Counted(Counted&& other) noexcept : number_(other.number_), moves_(other.moves_) { ++*moves_; }
    Counted& operator=(Counted&&) = delete;
    int number_;
    int* moves_;
  };
  struct Class {
    int number = 0;
    int* compared = nullptr;
    std::strong_ordering operator<=>(const Class& other) const {
      ++*compared;
      return number <=> other.number;
    }
    bool operator==(const Class& other) const { return (*this <=> other) == 0; }
  };
  int moves = 0;
  int compared = 0;
  constexpr int kOutstanding = 8000;
  ReadyQueues<Class, Counted> queues;
  // Two thirds have no class, the others each a class of their own: they do not fuse either.
  for (int i = 0; i < kOutstanding; ++i) {
    ReadyQueues<Class, Counted>::Kind kind;
    if (i % 3 == 0) kind.fuses_with = Class{i, &compared};
    queues.push(kind, Bytes(8), Counted(i, moves));
  }
  for (int i = 0; i < kOutstanding; ++i) {
    moves = 0;
    compared = 0;
    const std::vector<Counted> batch = queues.take(Bytes(1000), false);
    ASSERT_EQ(batch.size(), 1U);
    ASSERT_EQ(batch.front().number_, i);
    ASSERT_LE(moves, 2);
    ASSERT_LE(compared, 4);
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
