// SPDX-License-Identifier: Apache-2.0
// The mask of signals around the start of a thread, which inherits it.
#include "base/own_thread.h"

#include <pthread.h>

#include <system_error>
#include <utility>

namespace ronde::base {

SignalsBlocked::SignalsBlocked() {
  sigset_t signals;
  ::sigfillset(&signals);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP}) {
    ::sigdelset(&signals, own);
  }
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

SignalsBlocked::~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

Result<std::thread> start_thread(const std::string& what, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return Status::system("could not start " + what, error.code().value());
  }
}

}  // namespace ronde::base
