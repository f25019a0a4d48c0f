// SPDX-License-Identifier: Apache-2.0
// Which worker gets a task, and whose result counts.
#include "bindings/trainer/server/coordinator/coordinator_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {
namespace {

TEST(ServerCoordinatorState, ALostWorkersTaskRunsElsewhereAndItsResultCountsOnce) {
  CoordinatorState state(2, 5.0);
  const auto task = state.schedule("step");
  Message hello;
  hello.from = {Role::kWorker, 0, 7};
  ASSERT_THAT(state.on_message(0.0, hello), testing::SizeIs(1));
  hello.from = {Role::kWorker, 1, 8};
  EXPECT_THAT(state.on_message(5.5, hello), testing::IsEmpty());
  Messages given = state.on_tick(6.0);  // worker 0 is silent for 6 s
  if (given.empty()) given = state.on_tick(6.1);
  ASSERT_THAT(given, testing::SizeIs(1));
  EXPECT_EQ(given[0].to.index, 1U);
  EXPECT_EQ(state.retried(), 1U);
  Message result = hello;
  result.kind = Kind::kResult;
  result.sequence = task;
  result.text = "second";
  (void)state.on_message(6.2, result);
  result.from = {Role::kWorker, 0, 7};
  result.text = "first, late";
  (void)state.on_message(6.3, result);
  ASSERT_TRUE(state.is_done(task));
  EXPECT_EQ(state.take(task).text, "second");
  EXPECT_TRUE(state.all_done());
}

TEST(ServerCoordinatorState, AWorkerWhoseSetupFailsGetsNothing) {
  CoordinatorState state(2);
  state.add_setup("data", {});
  Message message;
  message.from = {Role::kWorker, 0, 7};
  (void)state.on_message(0.0, message);
  message.from.incarnation = 8;
  const Messages setup = state.on_message(1.0, message);
  ASSERT_THAT(setup, testing::SizeIs(1));
  const auto step = state.schedule("step");
  message.kind = Kind::kFailed;
  message.sequence = setup[0].sequence;
  message.text = "no data on this host";
  EXPECT_THAT(state.on_message(1.1, message), testing::IsEmpty());
  EXPECT_EQ(state.take_failure(), "worker 0 was started again, and no data on this host");
  message = {};
  message.from = {Role::kWorker, 1, 9};
  const Messages given = state.on_message(1.2, message);
  ASSERT_THAT(given, testing::SizeIs(1));
  EXPECT_EQ(given[0].sequence, step);
}

// Whatever is put before what waits meanwhile, and whatever an earlier start has left.
TEST(ServerCoordinatorState, AWorkerThatIsStartedAgainRunsEachSetupOnceBeforeAllElse) {
  CoordinatorState state(2, 5.0);
  state.add_setup("first", {});
  state.add_setup("second", {});
  const auto say = [&](double now, std::uint32_t worker, std::uint64_t start, std::uint64_t done) {
    Message message;
    message.kind = done == 0 ? Kind::kBeatBack : Kind::kResult;
    message.from = {Role::kWorker, worker, start};
    message.sequence = done;
    return state.on_message(now, message);
  };
  (void)state.schedule("step");
  ASSERT_THAT(say(0.0, 1, 9, 0), testing::SizeIs(1));  // worker 1 runs the step
  ASSERT_THAT(say(0.0, 0, 6, 0), testing::IsEmpty());
  ASSERT_THAT(say(5.9, 0, 7, 0), testing::SizeIs(1));
  std::string given;
  Messages next = say(5.9, 0, 8, 0);  // worker 0 is started once more in its first setup
  for (double now = 6.0; !next.empty(); now += 0.1) {
    given += (given.empty() ? "" : " ") + next[0].text;
    (void)state.on_tick(now);  // worker 1 is lost by now, and its step waits
    next = say(now, 0, 8, next[0].sequence);
  }
  EXPECT_EQ(given, "first second step");
  EXPECT_TRUE(state.all_done());
}

TEST(ServerCoordinatorState, ATaskOfOneWorkerGoesToAnotherWhereThatOneIsLost) {
  CoordinatorState state(2, 5.0, 60.0);
  const auto give = [&](std::uint32_t worker, double now) {
    Message hello;
    hello.from = {Role::kWorker, worker, 7 + worker};
    std::vector<std::uint64_t> given;
    for (const Message& one : state.on_message(now, hello)) given.push_back(one.sequence);
    return given;
  };
  (void)state.schedule("part", {}, 1, false);
  const auto must = state.schedule("part", {}, 1, true);
  EXPECT_THAT(give(0, 0.0), testing::IsEmpty());  // it may come yet
  (void)state.on_tick(0.0);
  EXPECT_THAT(give(1, 0.1), testing::ElementsAre(1U));
  EXPECT_THAT(give(0, 5.0), testing::IsEmpty());
  EXPECT_THAT(state.on_tick(5.2), testing::IsEmpty());  // worker 1 is lost
  EXPECT_THAT(give(0, 5.3), testing::ElementsAre(1U));
  EXPECT_FALSE(state.is_done(must));
}

}  // namespace
}  // namespace ronde::trainer::server
