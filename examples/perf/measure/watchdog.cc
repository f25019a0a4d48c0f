// SPDX-License-Identifier: Apache-2.0
// The thread of the watchdog, which sleeps while samples come and go.
#include "examples/perf/measure/watchdog.h"

#include <utility>

namespace ronde::perf {

Watchdog::Watchdog(std::chrono::duration<double> patience,
                   std::function<void(const std::string&)> expired)
    : patience_(std::chrono::duration_cast<std::chrono::steady_clock::duration>(patience)),
      expired_(std::move(expired)),
      thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

// The thread sleeps until the deadline it knows and then looks again: the begin and end of a sample
// wake no thread, so the measurements have the cores to themselves.
void Watchdog::begin(const std::string& what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
  deadline_ = std::chrono::steady_clock::now() + patience_;
  running_ = true;
}

void Watchdog::end() {
  const std::lock_guard lock(mutex_);
  running_ = false;
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto now = std::chrono::steady_clock::now();
    if (running_ && now >= deadline_) {
      const std::string what = what_;
      lock.unlock();
      expired_(what);
      return;
    }
    // A sample that begins while this sleeps ends no sooner than its patience from now.
    changed_.wait_until(lock, running_ ? deadline_ : now + patience_);
  }
}

}  // namespace ronde::perf
