// SPDX-License-Identifier: Apache-2.0
// Signals leave notes, and what is computed meanwhile stays as it is.
#include "bindings/trainer/chief/stop_signals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {
namespace {

using std::chrono::milliseconds;

TEST(StopSignals, NotesAreTakenOnceAndLate) {
  StopSignals signals;
  EXPECT_FALSE(signals.take_save_asked());
  raise(SIGUSR1);
  EXPECT_TRUE(signals.take_save_asked());
  EXPECT_FALSE(signals.take_save_asked());
  EXPECT_FALSE(signals.stop_asked());
  raise(SIGUSR2);
  EXPECT_TRUE(signals.stop_asked());
  EXPECT_TRUE(signals.stop_asked()) << "it stays so";
}

TEST(StopSignals, WhatWasThereBeforeComesBack) {
  struct sigaction before {};
  sigaction(SIGTERM, nullptr, &before);
  {
    const StopSignals one;
    const StopSignals two;  // another replica of this process
    raise(SIGTERM);
    EXPECT_TRUE(one.stop_asked() && two.stop_asked());
  }
  struct sigaction after {};
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
  const StopSignals next;
  EXPECT_FALSE(next.stop_asked()) << "another session";
}

// How a child ends that is sent SIGTERM twice with this pause in between.
int end_of_child(milliseconds pause) {
  const pid_t child = fork();
  if (child == 0) {
    const StopSignals signals;
    raise(SIGTERM);
    static_cast<void>(signals.stop_asked());
    std::this_thread::sleep_for(pause);
    raise(SIGTERM);
    static_cast<void>(signals.stop_asked());
    std::this_thread::sleep_for(milliseconds(10));
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(StopSignals, ASecondSigtermEndsTheProcessUnlessItIsTheSameRequest) {
  const int at_once = end_of_child(milliseconds(0));
  EXPECT_TRUE(WIFEXITED(at_once) && WEXITSTATUS(at_once) == 7);
  const int later = end_of_child(milliseconds(700));
  EXPECT_TRUE(WIFSIGNALED(later) && WTERMSIG(later) == SIGTERM);
}

// oneDNN's generated code uses the stack pointer for data, which a signal's frame overwrites.
TEST(StopSignals, WhatIsComputedUnderAStormOfSignalsStaysRight) {
  std::atomic<bool> end{false};
  // It takes signals, as threads of MPI do; this one does not.
  std::atomic<bool> begin{false};
  std::thread storm([&] {
    while (!begin) std::this_thread::yield();
    while (!end) {
      kill(getpid(), SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  {
    StopSignals signals;
    begin = true;
    constexpr std::size_t kRows = 500;
    constexpr std::size_t kTerms = 784;
    constexpr std::size_t kColumns = 128;
    std::vector<float> left(kRows * kTerms);
    std::vector<float> right(kTerms * kColumns);
    for (std::size_t i = 0; i < left.size(); ++i) left[i] = static_cast<float>(i * 7 % 13) - 6.0F;
    for (std::size_t i = 0; i < right.size(); ++i) right[i] = static_cast<float>(i * 5 % 11) - 5.0F;
    std::vector<float> first;
    Tape tape;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (std::chrono::steady_clock::now() < until) {
      tape.begin();
      const Tensor product =
          matmul(tape.borrow({kRows, kTerms}, left), tape.borrow({kTerms, kColumns}, right));
      const std::vector<float> values(product.values().begin(), product.values().end());
      if (first.empty()) first = values;
      ASSERT_EQ(values, first);
    }
    EXPECT_TRUE(signals.take_save_asked());
    end = true;
    storm.join();
  }
}

}  // namespace
}  // namespace ronde::trainer
