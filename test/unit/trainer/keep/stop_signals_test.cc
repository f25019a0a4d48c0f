// SPDX-License-Identifier: Apache-2.0
// Signals leave notes, and what is computed meanwhile stays as it is.
#include "bindings/trainer/keep/stop_signals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
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

// Forks; the child ends with what `body` returns, or by a signal: at the latest by SIGALRM.
pid_t start_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  return child;
}

int status_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

bool is_end_by(int status, int number) { return WIFSIGNALED(status) && WTERMSIG(status) == number; }

TEST(StopSignals, ASecondSigtermEndsAProcessWhateverItWaitsFor) {
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t child = start_child([&]() -> int {
    close(ready[0]);
    const StopSignals signals;
    const auto is_ready = [&] { return write(ready[1], "", 1) == 1; };
    if (!is_ready()) return 1;
    while (!signals.stop_asked()) std::this_thread::sleep_for(milliseconds(1));
    if (!is_ready()) return 1;
    while (true) pause();  // as in a wait for a disk that hangs
  });
  close(ready[1]);
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGTERM);
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  std::this_thread::sleep_for(milliseconds(1050));  // from which on it is another request
  kill(child, SIGTERM);
  EXPECT_TRUE(is_end_by(status_of(child), SIGTERM));
  close(ready[0]);
}

TEST(StopSignals, TwoSigtermsAtOnceAreOneRequest) {
  const auto outlives_both = [] {
    const int status = status_of(start_child([] {
      const StopSignals signals;
      raise(SIGTERM);
      raise(SIGTERM);
      return signals.stop_asked() ? 7 : 1;
    }));
    return WIFEXITED(status) && WEXITSTATUS(status) == 7;
  };
  // A child that got no core in between has been sent two requests.
  bool lives = false;
  for (int i = 0; i < 10 && !lives; ++i) lives = outlives_both();
  EXPECT_TRUE(lives);
}

TEST(StopSignals, ProgramsThatAreStartedMeanwhileHearSignals) {
  const StopSignals signals;
  // Not by a shell, which may clear the mask.
  const int status = status_of(start_child([] {
    return execlp("grep", "grep", "-q", "SigBlk:\t0000000000000000", "/proc/self/status", nullptr);
  }));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(StopSignals, AForkedChildIsEndedByOneSigterm) {
  const StopSignals signals;
  const pid_t child = start_child([]() -> int {
    while (true) pause();
  });
  kill(child, SIGTERM);
  EXPECT_TRUE(is_end_by(status_of(child), SIGTERM));
  EXPECT_FALSE(signals.stop_asked()) << "its note is not the parent's";
}

class Product {
 public:
  Product() {
    for (std::size_t i = 0; i < left_.size(); ++i) left_[i] = static_cast<float>(i * 7 % 13) - 6.0F;
    for (std::size_t i = 0; i < right_.size(); ++i) {
      right_[i] = static_cast<float>(i * 5 % 11) - 5.0F;
    }
  }
  std::vector<float> compute() {
    tape_.begin();
    const Tensor product =
        matmul(tape_.borrow({kRows, kTerms}, left_), tape_.borrow({kTerms, kColumns}, right_));
    return {product.values().begin(), product.values().end()};
  }

 private:
  static constexpr std::size_t kRows = 500;
  static constexpr std::size_t kTerms = 784;
  static constexpr std::size_t kColumns = 128;
  std::vector<float> left_ = std::vector<float>(kRows * kTerms);
  std::vector<float> right_ = std::vector<float>(kTerms * kColumns);
  Tape tape_;
};

// Sends SIGUSR1 to every other thread of the process, again and again.
class Storm {
 public:
  Storm() : thread_([this] { blow(); }) {}
  Storm(const Storm&) = delete;
  Storm& operator=(const Storm&) = delete;
  ~Storm() {
    end_ = true;
    thread_.join();
  }

 private:
  void blow() {
    const auto self = static_cast<pid_t>(syscall(SYS_gettid));
    do {  // once at least, wherever this thread gets its core late
      for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        const pid_t thread = std::stoi(task.path().filename());
        if (thread != self) syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } while (!end_);
  }

  std::atomic<bool> end_{false};
  std::thread thread_;
};

// oneDNN's generated code uses the stack pointer for data, which a signal's frame overwrites.
TEST(StopSignals, WhatIsComputedUnderAStormOfSignalsStaysRight) {
  Product product;
  const std::vector<float> expected = product.compute();  // oneDNN starts its threads, too
  StopSignals signals;
  {
    const Storm storm;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (std::chrono::steady_clock::now() < until) ASSERT_EQ(product.compute(), expected);
  }
  EXPECT_TRUE(signals.take_save_asked());
}

}  // namespace
}  // namespace ronde::trainer
