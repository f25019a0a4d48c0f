// SPDX-License-Identifier: Apache-2.0
// Threads that Ronde starts: signals are the business of the program's own threads, and a host
// without a thread to spare is an error like any other.
#pragma once

#include <pthread.h>

#include <csignal>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/status.h"

namespace ronde::base {

// While it lives, the calling thread, and threads that start from it meanwhile (those of a library,
// too), block all signals but those that a thread raises itself: a fault in any thread has to reach
// the program's crash handler.
//
// Thread safety: belongs to the thread that made it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t signals;
    ::sigfillset(&signals);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP}) {
      ::sigdelset(&signals, own);
    }
    ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// Starts a thread that blocks these signals and calls body(), which must not throw. `what` is for
// the error (kSystem), where the system has no thread to spare: "the background thread".
//
// Thread safety: any thread.
inline Result<std::thread> start_thread(const std::string& what, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return Status::system("could not start " + what, error.code().value());
  }
}

}  // namespace ronde::base
