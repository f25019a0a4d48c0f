// SPDX-License-Identifier: Apache-2.0
// The executor: batches one after another, and what it says of them.
#include "runtime/execute/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;
using collectives::Exchange;
using collectives::StepResult;
using testing::ElementsAre;

constexpr std::int32_t kRank = 1;

// Records what a data plane is asked for, and sets what the steps of its collectives return.
struct Script {
  std::vector<Exchange> exchanges;
  // What the steps of every collective return in turn; after the last one kDone.
  std::vector<base::Result<StepResult>> results;
  int steps = 0;
  int alive = 0;
  bool rings = false;

  [[nodiscard]] std::vector<std::uint64_t> sequences() const {
    std::vector<std::uint64_t> all;
    for (const Exchange& exchange : exchanges) all.push_back(exchange.sequence);
    return all;
  }
};

class ScriptedCollective final : public collectives::Collective {
 public:
  explicit ScriptedCollective(Script& script) : script_(script) { ++script_.alive; }
  ~ScriptedCollective() override { --script_.alive; }
  ScriptedCollective(const ScriptedCollective&) = delete;
  ScriptedCollective& operator=(const ScriptedCollective&) = delete;

  base::Result<StepResult> step() override {
    ++script_.steps;
    if (next_ == script_.results.size()) return StepResult::kDone;
    return script_.results[next_++];
  }

 private:
  Script& script_;
  std::size_t next_ = 0;
};

class ScriptedPlane final : public collectives::DataPlane {
 public:
  explicit ScriptedPlane(Script& script) : script_(script) {}

  base::Result<CollectivePtr> make(const Exchange& exchange) override {
    script_.exchanges.push_back(exchange);
    if (exchange.root < 0) return Status::error(Code::kOutOfMemory, "no memory for it");
    return CollectivePtr(std::make_unique<ScriptedCollective>(script_));
  }
  Status tune(const base::Config& /*config*/, const std::function<Status()>& idle) override {
    return idle();
  }
  void want_rings(bool wanted) override { script_.rings = wanted; }
  [[nodiscard]] std::string description() const override { return "a script"; }

 private:
  Script& script_;
};

Batch batch_of(std::uint64_t sequence = 1) {
  Batch batch;
  batch.exchange.operation = base::Operation::kBarrier;
  batch.exchange.sequence = sequence;
  return batch;
}

class ExecutorTest : public testing::Test {
 protected:
  Executor make(int watch = 0) { return {std::make_unique<ScriptedPlane>(script_), kRank, watch}; }
  // Steps until the batch that runs is finished.
  void finish(Executor& executor) {
    while (executor.busy()) ASSERT_TRUE(executor.step(finished_).ok());
  }

  Script script_;
  std::vector<FinishedBatch> finished_;
};

TEST_F(ExecutorTest, NothingToDoIsNotBusy) {
  Executor executor = make();
  EXPECT_FALSE(executor.busy());
  const auto moved = executor.step(finished_);
  ASSERT_TRUE(moved.ok());
  EXPECT_FALSE(*moved);
}

TEST_F(ExecutorTest, BatchesFollowEachOther) {
  Executor executor = make();
  script_.results = {StepResult::kProgress};
  executor.enqueue(batch_of(7));
  executor.enqueue(batch_of(8));
  EXPECT_TRUE(executor.busy());
  EXPECT_EQ(executor.current().sequence, 7U);
  ASSERT_TRUE(executor.step(finished_).ok());
  EXPECT_THAT(script_.sequences(), ElementsAre(7U)) << "the second waits for the first";
  EXPECT_TRUE(finished_.empty());
  ASSERT_TRUE(executor.step(finished_).ok());
  ASSERT_EQ(finished_.size(), 1U);
  EXPECT_EQ(finished_[0].sequence, 7U);
  EXPECT_TRUE(finished_[0].status.ok());
  EXPECT_EQ(script_.alive, 0) << "what is finished holds nothing";
  EXPECT_EQ(executor.current().sequence, 8U);
  finish(executor);
  EXPECT_THAT(script_.sequences(), ElementsAre(7U, 8U));
  EXPECT_FALSE(executor.busy());
}

TEST_F(ExecutorTest, AStepSaysWhetherAnythingMoved) {
  Executor executor = make();
  script_.results = {StepResult::kIdle, StepResult::kProgress};
  executor.enqueue(batch_of());
  EXPECT_FALSE(executor.step(finished_).value());
  EXPECT_TRUE(executor.step(finished_).value());
  EXPECT_TRUE(executor.step(finished_).value()) << "finishing is moving";
}

TEST_F(ExecutorTest, WatchesALittleBeforeItSaysThatNothingMoves) {
  Executor executor = make(3);
  script_.results.assign(6, StepResult::kIdle);
  executor.enqueue(batch_of());
  EXPECT_FALSE(executor.step(finished_).value());
  EXPECT_EQ(script_.steps, 4) << "one look and three more";
  EXPECT_TRUE(executor.step(finished_).value()) << "found by a look of the same step";
  EXPECT_EQ(script_.steps, 7);
  EXPECT_EQ(finished_.size(), 1U);
}

TEST_F(ExecutorTest, AnErrorEndsIt) {
  Executor executor = make(5);
  script_.results = {Status::error(Code::kInternal, "the wire is cut")};
  executor.enqueue(batch_of());
  const auto moved = executor.step(finished_);
  ASSERT_FALSE(moved.ok());
  EXPECT_EQ(moved.status().message(), "the wire is cut");
  EXPECT_EQ(script_.steps, 1) << "nothing may be stepped after an error";
  EXPECT_TRUE(executor.busy());
  executor.abandon();
  EXPECT_FALSE(executor.busy());
  EXPECT_EQ(script_.alive, 0);
}

TEST_F(ExecutorTest, WhatCannotBeMadeIsAnError) {
  Executor executor = make();
  Batch batch = batch_of();
  batch.exchange.root = -1;
  executor.enqueue(std::move(batch));
  EXPECT_EQ(executor.step(finished_).status().message(), "no memory for it");
  EXPECT_TRUE(finished_.empty());
}

TEST_F(ExecutorTest, ABatchOfDevicesNeedsOne) {
  Executor executor = make();
  Batch batch = batch_of();
  batch.of_device = true;
  executor.enqueue(std::move(batch));
  EXPECT_EQ(executor.step(finished_).status().code(), Code::kInternal);
  EXPECT_TRUE(script_.exchanges.empty());
}

TEST_F(ExecutorTest, WishesAndTuningGoToThePlane) {
  Executor executor = make();
  executor.want_rings(true);
  EXPECT_TRUE(script_.rings);
  executor.want_rings(false);
  EXPECT_FALSE(script_.rings);
  EXPECT_EQ(executor.description(), "a script");
  const Status tuned = executor.tune(
      base::Config(), [] { return Status::error(Code::kDeadline, "the others did not come"); });
  EXPECT_EQ(tuned.message(), "the others did not come");
}

}  // namespace
}  // namespace ronde::runtime
