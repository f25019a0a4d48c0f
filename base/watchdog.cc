// SPDX-License-Identifier: Apache-2.0
// The thread that sleeps until the deadline, and what it does then.
#include "base/watchdog.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "base/own_thread.h"

namespace ronde::base {

Watchdog::Watchdog(Nanoseconds span, std::string text) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this, span, line = std::move(text)] { watch(span, line); });
}

Watchdog::~Watchdog() {
  {
    const MutexLock lock(mutex_);
    done_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void Watchdog::watch(Nanoseconds span, const std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + span;
  const MutexLock lock(mutex_);
  while (!done_) {
    if (ended_.wait_until(mutex_, deadline) == std::cv_status::no_timeout) continue;
    if (done_) return;
    Log().error(text);
    std::_Exit(EXIT_FAILURE);
  }
}

}  // namespace ronde::base
