// SPDX-License-Identifier: Apache-2.0
// What the ranks agree on by themselves while one of them has joined: it says nothing.
#include <gmock/gmock.h>

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/prepared.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

constexpr int kRanks = 4;

void join(Engine& engine) {
  const auto joined = engine.join(true);
  ASSERT_TRUE(joined.ok());
  EXPECT_TRUE(engine.wait(**joined).ok());
}

testing::EngineOptions with_deadlocks_found() {
  testing::EngineOptions options;
  options.environment = {"RONDE_DEADLOCK_GRACE_SECONDS=0.5"};
  return options;
}

// The leader of the host, which makes the lines, or another one.
TEST(BesideJoins, WhatIsPreparedGoesOnWithoutTheRank) {
  for (const int away : {0, 1}) {
    const auto engines = testing::open_engines(kRanks, with_deadlocks_found());
    testing::on_ranks(kRanks, [&](int rank) {
      const testing::EnginePtr& engine = engines[static_cast<std::size_t>(rank)];
      if (rank != away) {
        std::vector<float> data(2);
        Submission sum;
        sum.name = "loss";
        sum.signature.operation = base::Operation::kAllreduce;
        sum.signature.op = base::ReduceOp::kSum;
        sum.signature.shape = {2};
        sum.views[0].input = reinterpret_cast<const std::byte*>(data.data());
        sum.views[0].output = reinterpret_cast<std::byte*>(data.data());
        const auto made = Prepared::make(engine, sum);
        ASSERT_TRUE(made.ok()) << made.status().message();
        for (int call = 0; call < 3; ++call) {
          data.assign(2, static_cast<float>(rank));
          const base::Status ran = (*made)->run();
          ASSERT_TRUE(ran.ok()) << ran.message();
          EXPECT_EQ(data[1], static_cast<float>(0 + 1 + 2 + 3 - away));
        }
      }
      join(*engine);
      EXPECT_TRUE(engine->close().ok());
    });
  }
}

// Too large for a line; the result has the rows of those that are still there.
TEST(BesideJoins, APreparedAllgatherTellsTheRowsOfEachCall) {
  constexpr std::int64_t kRows = 2000;
  const auto engines = testing::open_engines(kRanks, with_deadlocks_found());
  testing::on_ranks(kRanks, [&](int rank) {
    const testing::EnginePtr& engine = engines[static_cast<std::size_t>(rank)];
    const std::vector<float> data(kRows, static_cast<float>(rank));
    Submission gather;
    gather.name = "rows";
    gather.signature.operation = base::Operation::kAllgather;
    gather.signature.shape = {kRows};
    gather.views[0].input = reinterpret_cast<const std::byte*>(data.data());
    const auto made = Prepared::make(engine, gather);
    ASSERT_TRUE(made.ok()) << made.status().message();
    for (const std::int64_t ranks : {kRanks, kRanks - 1}) {
      if (rank == 1 && ranks < kRanks) continue;
      const base::Status ran = (*made)->run();
      ASSERT_TRUE(ran.ok()) << ran.message();
      const auto all = (*made)->gathered();
      ASSERT_TRUE(all.ok());
      EXPECT_THAT(all->shape, ::testing::ElementsAre(ranks * kRows));
      EXPECT_EQ(reinterpret_cast<const float*>(all->data)[(ranks - 1) * kRows], 3.0F);
    }
    join(*engine);
    EXPECT_TRUE(engine->close().ok());
  });
}

TEST(BesideJoins, ASplitIsOneOfTheOtherRanks) {
  const auto engines = testing::open_engines(kRanks, with_deadlocks_found());
  testing::on_ranks(kRanks, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    if (rank != 1) {
      const auto half = engine.split(rank / 2, "half", "");
      ASSERT_TRUE(half.ok()) << half.status().message();
      ASSERT_NE(*half, nullptr);
      EXPECT_EQ((*half)->size(), rank == 0 ? 1 : 2);
      EXPECT_EQ((*half)->rank(), rank == 3 ? 1 : 0);
      EXPECT_TRUE((*half)->close().ok());
    }
    join(engine);
    EXPECT_TRUE(engine.close().ok());
  });
}

}  // namespace
}  // namespace ronde::runtime
