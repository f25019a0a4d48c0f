// SPDX-License-Identifier: Apache-2.0
// Threads that Ronde starts take no signal of the program's, and a host without a thread to spare
// is an error.
#include "base/process/own_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <csignal>

namespace ronde::base {
namespace {

bool blocks(const sigset_t& mask, int signal) { return ::sigismember(&mask, signal) == 1; }

sigset_t mask_of_this_thread() {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return mask;
}

TEST(OwnThread, TakesNoSignalOfTheProgramAndEachFaultOfItsOwn) {
  sigset_t mask;
  auto thread = start_thread("a thread", [&] { mask = mask_of_this_thread(); });
  ASSERT_TRUE(thread.ok()) << thread.status().message();
  thread->join();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM}) {
    EXPECT_TRUE(blocks(mask, signal)) << signal;
  }
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP}) {
    EXPECT_FALSE(blocks(mask, signal)) << signal;
  }
}

TEST(OwnThread, TheThreadThatStartsItHasItsMaskBack) {
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &one, nullptr);
  {
    const SignalsBlocked blocked;
    EXPECT_TRUE(blocks(mask_of_this_thread(), SIGTERM));
  }
  EXPECT_FALSE(blocks(mask_of_this_thread(), SIGTERM));
  EXPECT_TRUE(blocks(mask_of_this_thread(), SIGUSR2)) << "the program's own choice";
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
}

}  // namespace
}  // namespace ronde::base
