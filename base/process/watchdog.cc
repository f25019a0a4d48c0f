// SPDX-License-Identifier: Apache-2.0
// The thread that sleeps until the deadline, and what it does then.
#include "base/process/watchdog.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "base/process/own_thread.h"

namespace ronde::base {

Result<std::unique_ptr<Watchdog>> Watchdog::start(Nanoseconds span, std::string text) {
  std::unique_ptr<Watchdog> watchdog(new Watchdog);
  auto thread = start_thread(
      "the thread that watches a deadline",
      [self = watchdog.get(), span, line = std::move(text)] { self->watch(span, line); });
  RONDE_RETURN_IF_ERROR(thread.status());
  watchdog->thread_ = std::move(*thread);
  return watchdog;
}

Watchdog::~Watchdog() {
  {
    const MutexLock lock(mutex_);
    done_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
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
