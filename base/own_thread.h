// SPDX-License-Identifier: Apache-2.0
// Threads that Ronde starts: signals are the business of the program's own threads, and a host
// without a thread to spare is an error like any other.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "base/status.h"

namespace ronde::base {

// While it lives, the calling thread, and threads that start from it meanwhile (those of a library,
// too), block all signals but those that a thread raises itself: a fault in any thread has to reach
// the program's crash handler.
//
// Thread safety: belongs to the thread that made it.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// Starts a thread that blocks these signals and calls body(), which must not throw. `what` is for
// the error (kSystem), where the system has no thread to spare: "the background thread".
//
// Thread safety: any thread.
Result<std::thread> start_thread(const std::string& what, std::function<void()> body);

}  // namespace ronde::base
