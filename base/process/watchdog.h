// SPDX-License-Identifier: Apache-2.0
// A deadline for a call that cannot be interrupted: if it does not return in time, the process ends
// with one line that says why. The start of MPI needs it, which waits for ever if a rank never
// comes.
#pragma once

#include <condition_variable>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace ronde::base {

// Is armed from construction to destruction. Thread safety: belongs to the thread that makes the
// call.
class Watchdog {
 public:
  // After `span` of real time it writes `text` to standard error and ends the process with exit
  // code 1, without running destructors or exit handlers. kSystem: there is no thread to spare.
  static Result<std::unique_ptr<Watchdog>> start(Nanoseconds span, std::string text);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  Watchdog() = default;
  void watch(Nanoseconds span, const std::string& text);

  Mutex mutex_;
  std::condition_variable_any ended_;
  bool done_ RONDE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ronde::base
