// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/ring_plan.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace ronde::collectives {
namespace {

constexpr int kMostRanks = 64;

RingTurn turn_of(RingKind kind, int rank, int size, int index) {
  return RingPlan(kind, rank, size).turn(index);
}

TEST(RingPlan, WhatARankSendsIsWhatTheNextReceives) {
  for (const RingKind kind :
       {RingKind::kAllreduce, RingKind::kReduceScatter, RingKind::kAllgather}) {
    for (int size = 1; size <= kMostRanks; ++size) {
      for (int rank = 0; rank < size; ++rank) {
        const RingPlan plan(kind, rank, size);
        const RingPlan next(kind, plan.next(), size);
        ASSERT_EQ(next.previous(), rank);
        ASSERT_EQ(plan.turns(), next.turns());
        ASSERT_FALSE(receives(plan.turn(0).verb));
        ASSERT_FALSE(sends(plan.turn(plan.turns() - 1).verb));
        for (int t = 0; t + 1 < plan.turns(); ++t) {
          ASSERT_TRUE(sends(plan.turn(t).verb));
          ASSERT_TRUE(receives(next.turn(t + 1).verb));
          ASSERT_EQ(plan.turn(t).chunk, next.turn(t + 1).chunk);
        }
      }
    }
  }
}

// The steps as the literature counts them: at step s, rank r sends chunk r-1-s and receives r-2-s.
TEST(RingPlan, StepsOfTheAllreduceAreTheWellKnownOnes) {
  for (int size = 2; size <= kMostRanks; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      const RingPlan plan(RingKind::kAllreduce, rank, size);
      ASSERT_EQ(plan.turns(), 2 * (size - 1) + 1);
      for (int s = 0; s < 2 * (size - 1); ++s) {
        ASSERT_EQ(plan.turn(s).chunk, (rank - 1 - s + 3 * size) % size);
        ASSERT_EQ(plan.turn(s + 1).chunk, (rank - 2 - s + 3 * size) % size);
      }
    }
  }
}

TEST(RingPlan, EveryChunkIsSummedInTheOrderOfTheRule) {
  for (int size = 2; size <= kMostRanks; ++size) {
    for (int chunk = 0; chunk < size; ++chunk) {
      // Follow the chunk from rank to rank: the rank that deals with it in turn t.
      std::vector<int> summed;
      std::vector<int> copied;
      for (int t = 0; t <= 2 * (size - 1); ++t) {
        const int rank = (chunk + 1 + t) % size;
        const RingTurn turn = turn_of(RingKind::kAllreduce, rank, size, t);
        ASSERT_EQ(turn.chunk, chunk);
        const RingVerb verb = turn.verb;
        if (verb == RingVerb::kSend || verb == RingVerb::kReceiveReduceSend ||
            verb == RingVerb::kReceiveReduceCopySend) {
          summed.push_back(rank);
        }
        if (verb == RingVerb::kReceiveReduceCopySend || verb == RingVerb::kReceiveCopySend ||
            verb == RingVerb::kReceiveCopy) {
          copied.push_back(rank);
        }
      }
      ASSERT_EQ(std::ssize(summed), size);
      ASSERT_EQ(std::ssize(copied), size);
      for (int i = 0; i < size; ++i) {
        ASSERT_EQ(summed[static_cast<std::size_t>(i)], (chunk + 1 + i) % size);
        ASSERT_EQ(copied[static_cast<std::size_t>(i)], (chunk + i) % size);
      }
    }
  }
}

TEST(RingPlan, AReduceScatterIsTheFirstHalf) {
  for (int size = 2; size <= kMostRanks; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_EQ(RingPlan(RingKind::kReduceScatter, rank, size).turns(), size);
      for (int t = 0; t + 1 < size; ++t) {
        ASSERT_EQ(turn_of(RingKind::kReduceScatter, rank, size, t),
                  turn_of(RingKind::kAllreduce, rank, size, t));
      }
      ASSERT_EQ(turn_of(RingKind::kReduceScatter, rank, size, size - 1),
                (RingTurn{RingVerb::kReceiveReduceCopy, rank}));
    }
  }
}

TEST(RingPlan, AnAllgatherIsTheSecondHalf) {
  for (int size = 2; size <= kMostRanks; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_EQ(turn_of(RingKind::kAllgather, rank, size, 0),
                (RingTurn{RingVerb::kCopySend, rank}));
      for (int t = 1; t < size; ++t) {
        ASSERT_EQ(turn_of(RingKind::kAllgather, rank, size, t),
                  turn_of(RingKind::kAllreduce, rank, size, size - 1 + t));
      }
    }
  }
}

TEST(RingPlan, AloneThereIsNobodyToSendTo) {
  EXPECT_EQ(RingPlan(RingKind::kAllreduce, 0, 1).turns(), 1);
  EXPECT_EQ(turn_of(RingKind::kAllreduce, 0, 1, 0), (RingTurn{RingVerb::kReduceCopy, 0}));
  EXPECT_EQ(RingPlan(RingKind::kReduceScatter, 0, 1).turns(), 1);
  EXPECT_EQ(turn_of(RingKind::kReduceScatter, 0, 1, 0), (RingTurn{RingVerb::kReduceCopy, 0}));
  EXPECT_EQ(RingPlan(RingKind::kAllgather, 0, 1).turns(), 1);
  EXPECT_EQ(turn_of(RingKind::kAllgather, 0, 1, 0), (RingTurn{RingVerb::kCopy, 0}));
}

}  // namespace
}  // namespace ronde::collectives
