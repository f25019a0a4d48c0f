// SPDX-License-Identifier: Apache-2.0
// The sleep state over an epoll that writes down what it is given. Its races are in
// agent_role_test.
#include "runtime/drive/sleep_state.h"

#include <string>

#include "gtest/gtest.h"

namespace ronde::runtime {
namespace {

class SleepStateTest : public ::testing::Test {
 protected:
  std::string epoll;  // "+7 -7": handed over, taken back
  base::Status answer;
  SleepState state{[this](int fd, bool watched) {
    epoll += (watched ? " +" : " -") + std::to_string(fd);
    return answer;
  }};
};

TEST_F(SleepStateTest, ADescriptorIsHandedOverOnceAfterTheHolderHasAsked) {
  EXPECT_TRUE(state.watch(7).ok());
  EXPECT_EQ(epoll, "");  // the holder watches itself
  state.ask(true);
  EXPECT_TRUE(state.asked());
  EXPECT_TRUE(state.watch(7).ok());
  EXPECT_TRUE(state.watch(7).ok());
  EXPECT_TRUE(state.watch(9).ok());
  EXPECT_EQ(epoll, " +7 +9");
  state.ask(false);
  EXPECT_EQ(epoll, " +7 +9 -7 -9");
  state.ask(false);
  EXPECT_EQ(epoll, " +7 +9 -7 -9");
}

TEST_F(SleepStateTest, WhatTheEpollHasToldIsHandedOverAgain) {
  state.ask(true);
  EXPECT_TRUE(state.watch(7).ok());
  EXPECT_TRUE(state.on_event(7));
  EXPECT_FALSE(state.on_event(8));  // the process of a rank
  EXPECT_TRUE(state.watch(7).ok());
  EXPECT_EQ(epoll, " +7 +7");
}

TEST_F(SleepStateTest, AnErrorOfTheEpollIsReturned) {
  state.ask(true);
  answer = base::Status::error(base::Code::kSystem, "no room");
  EXPECT_EQ(state.watch(7).message(), "no room");
}

TEST_F(SleepStateTest, WorkIsLeftUntilALookSaysOtherwise) {
  EXPECT_FALSE(state.work_left());
  state.note_left(true);
  EXPECT_TRUE(state.work_left());
  state.note_left(false);
  EXPECT_FALSE(state.work_left());
}

}  // namespace
}  // namespace ronde::runtime
